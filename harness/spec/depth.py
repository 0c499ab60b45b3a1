"""How many layers a stack may have to show the stages inside them. Adapters import this module: it needs nothing."""

INSIDE_UP_TO = 4
"""The largest number of layers of a stack that shows the stages inside them (clause T-3)."""


def shows_inside(layers: int) -> bool:
    """Whether a stack of so many layers shows the stages inside them, as `layer_0.norm1` and so on (clause T-3).

    Example: `shows_inside(4)` is True, `shows_inside(5)` is False.
    """
    return layers <= INSIDE_UP_TO
