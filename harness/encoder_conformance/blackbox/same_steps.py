"""Whether a file computes what its source computes step by step: then no input tells the two apart, and a weakness that
one shows is the other's, too.
"""

from encoder_conformance.blackbox.first_apart import biased_later, paired_values
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.worker.failure import Failure

_ROUNDED = 4
"""Roundings of float32, of a value: a constant that a file holds in it is off by one. What a norm's epsilon does, in
the root or outside, is 10 times that at least."""
_OF_EACH_ELEMENT = (
    "Abs", "Add", "Cast", "Clip", "Div", "Erf", "Exp", "Gelu", "Identity", "Log", "Max", "Min", "Mul", "Neg", "Pow",
    "Reciprocal", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh", "Where",
)  # fmt: skip
"""Operators that take no sum: an activation is one operator in one, and five of these in the other."""


def computes_the_same(mine: Source, right: Source, case: WholeCase, first: str) -> bool:
    """Whether each sum, product and mean that the file makes of its value `first` is one that its source makes, too, in
    float64: E[x²] is none of a source that takes the mean of (x − mean)². False where one does not show its steps.
    """
    own, wide = (each.traced(case.inputs, "float64") for each in (mine, right))
    if isinstance(own, Failure) or isinstance(wide, Failure):
        return False
    limits = {name: _ROUNDED * FORMATS["float32"].roundoff * rms(each.in_order) for name, each in wide.numbers.items()}
    pairs = dict(paired_values(own, wide, limits))
    behind = _made_of(first, own)
    apart = [own.makers[name] for name in behind if name in own.numbers and name not in pairs]
    summed = [step for step in apart if step.operator not in _OF_EACH_ELEMENT]
    return bool(behind & pairs.keys()) and not {step.value for step in summed} - biased_later(summed, own, wide, limits)


def _made_of(first: str, call: TracedCall) -> set[str]:
    """The values that are made of this one."""
    found = {first}
    for step in call.steps:
        if found.intersection(step.takes):
            found.add(step.value)
    return found - {first}
