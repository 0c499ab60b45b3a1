"""Says where an implementation is more exact than its arithmetic can be: as if it had the expected values.

Measured for outputs and gradients: the rms of PyTorch, TensorFlow, JAX and ONNX Runtime is 0.6 to 0.8 σ in the median,
in float32 and float64 alike (docs/trust.md has the table). Expected values that are rounded
once have 0.14 σ in float32 and 0 in float64, and nowhere more than 0.28 σ. In 16 bits the two cannot be told apart: a
layer that computes in float32 and rounds its output is honest.
"""

from dataclasses import dataclass

from encoder_conformance.judging.records import Exactness, Record
from encoder_conformance.spec.outcome import Outcome

LIMIT = 0.25
"""σ. Of honest implementations at most 7 % of the checks are below it, of rounded goldens over 95 %."""
_FEWEST = 20
"""Checks: in a few kinds of cases (an empty batch, the sums of BERT's sizes) honest ones are below the limit too."""
_FORMATS, _CHECKS = frozenset({"float32", "float64"}), frozenset({"output", "gradients"})


@dataclass(slots=True)
class Count:
    """The checks of one implementation in one dtype whose rms was counted, and those `below` the limit."""

    checks: int = 0
    below: int = 0

    def add(self, rms: float) -> None:
        """Count a check of this rms, in σ."""
        self.checks += 1
        self.below += rms < LIMIT

    @property
    def is_suspicious(self) -> bool:
        """Whether most of enough checks are below the limit."""
        return self.checks >= _FEWEST and 2 * self.below > self.checks


def shows_exactness(record: Record) -> bool:
    """Whether the rms of this record says how exact its arithmetic was."""
    judged = record.outcome in (Outcome.PASS, Outcome.FAIL) and record.rms is not None
    return judged and record.dtype in _FORMATS and record.check in _CHECKS


def exactness_line(exactness: Exactness) -> str:
    """A line that says what is suspicious, and how to find out more."""
    which = f"{exactness.below} of {exactness.checks} outputs and gradients are within {LIMIT:g} σ"
    return (
        f"{exactness.implementation} {exactness.dtype}: suspiciously exact: {which}, and rounding makes more. Either "
        "it computes in a wider format, or it has the expected values (docs/trust.md); --seed random gives it others."
    )
