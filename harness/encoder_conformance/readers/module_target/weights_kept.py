"""Whether a module leaves its own weights as they are: one that writes into them is another after each call."""

import numpy as np

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, pieces
from encoder_conformance.spec.axes import Array


def refuse_written(module: LiveModule, before: Array, feeds: Feeds) -> None:
    """Raises BadTarget for one that calls have changed. `before`: its own elements [n] when it had not been called;
    of one that makes them at its first call, fewer."""
    now = module.flat()
    if now.shape != before.shape or np.array_equal(now, before, equal_nan=True):
        return
    shapes = module.shapes
    pairs = zip(shapes, pieces(before, shapes.values()), pieces(now, shapes.values()), strict=True)
    name = next(name for name, one, other in pairs if not np.array_equal(one, other, equal_nan=True))
    at = module.written_at(name, feeds)
    hint = "a layer leaves its parameters as they are: write into them outside of the forward pass"
    problem = f"a call writes into its own parameter {name}{f', {at}' if at else ''}"
    raise BadTarget(problem, hint, "answers-depend-on-earlier-calls")
