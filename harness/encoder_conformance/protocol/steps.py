"""The steps of one call: what makes each value inside of a file or a module, and of which others."""

from collections.abc import Collection, Iterable
from typing import Literal

from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen

_SHOWN, _OF_EACH = 1 << 24, 1 << 19
"""Elements of all parameters that are shown with a call; and, where there are more, of each that is."""


def most_shown(sizes: Iterable[int]) -> int:
    """Elements of the largest parameter that is shown, or value of parameters alone, where all parameters have these:
    of a large model its vectors and its small tables are, for the rest is as large as the model."""
    return _SHOWN if sum(sizes) <= _SHOWN else _OF_EACH


class TracedStep(Frozen):
    """A value that `made_by` makes, a node or an operator in a part of a module, of those that it `takes`; or one that
    is `given`, as an input or as a parameter. `operator`: the name of what makes it in ONNX or the framework."""

    value: Plain
    made_by: Plain
    takes: tuple[Plain, ...]
    given: Literal["", "input", "parameter"] = ""
    operator: Plain = ""


def of_parameters(step: TracedStep, before: Collection[str]) -> bool:
    """Whether a value is a parameter, or made of such values alone; `before`: those of the steps before it."""
    return step.given == "parameter" or (bool(step.takes) and all(name in before for name in step.takes))
