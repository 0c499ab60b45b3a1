"""A file of integers in messages: how it is quantised, and what a worker measured of its rounding."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen

STANDS_FOR = "the numbers that its integers stand for"
"""What a file of integers is compared with, where nothing says what it was made from."""

WeightInFloat = Literal["source", "rounded", ""]
"""The source's own; the numbers that the file's integers stand for; or there is none."""


class IntegerWeights(Frozen):
    """Weights that are stored alike. `form`: by which operators they are read, `stored`: the format of the integers,
    `scales`: by tensor, by channel or by block."""

    form: Plain
    stored: Plain
    scales: Plain
    count: int

    def __str__(self) -> str:
        return f"{self.count} {self.stored} {self.scales} ({self.form})"


class Quantisation(Frozen):
    """How a file is quantised. `static`, `dynamic`: how many activations are rounded by scales that the file holds, and
    by scales that are made of each input."""

    weights: tuple[IntegerWeights, ...]
    static: int
    dynamic: int

    def __str__(self) -> str:
        held = ", ".join(map(str, self.weights)) or "none"
        ways = ((self.static, "by fixed scales"), (self.dynamic, "by scales of each input"))
        rounded = " and ".join(f"{count} {how}" for count, how in ways if count)
        return f"weights {held}; activations {f'rounded {rounded}' if rounded else 'not rounded'}"


class RoundedAway(Frozen):
    """An activation whose rounding loses what it says: `problem`, at the node that rounds it, by its scale."""

    node: Plain
    scale: Plain
    problem: Plain


class IntegerPlace(Frozen):
    """One operator of integers, and the weight with which it is left in float."""

    node: Plain
    weight: WeightInFloat


class RoundingLooked(Frozen):
    """What a worker sees in a file of integers: its operators of integers, and what its scales lose on some inputs."""

    places: tuple[IntegerPlace, ...]
    away: tuple[RoundedAway, ...]
