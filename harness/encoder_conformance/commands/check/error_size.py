"""How large the largest error of some checks is, in words: in σ, unless σ is no measure of it."""

from collections.abc import Iterable, Iterator

from encoder_conformance.judging.records import Record
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.reports.run.matrix import format_sigma
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import EXPECTED

_BEYOND = 1000.0
"""Times its own size by which nothing is wrong in σ: σ is the smallest number of the format there, and no noise."""


def error_size(records: Iterable[Record], unit: str) -> str:
    """`largest error 0.88 σ`, with the unit in place of σ; that something is not finite, or how far it is from what a
    right layer has without any rounding. "" where nothing failed and there is no number."""
    return ", ".join(_said(list(records), unit))


def _said(records: list[Record], unit: str) -> Iterator[str]:
    failed = [record for record in records if record.outcome not in EXPECTED]
    if any(tensor.problem and tensor.problem.kind == "non-finite" for each in failed for tensor in each.tensors):
        yield "some numbers are not finite where they should be, or the reverse"
    numbers = [(record.rms, record) for record in records if record.rms is not None]
    if not numbers:
        return
    rms, worst = max(numbers, key=lambda each: each[0])
    exact = _worst_of_no_rounding(worst)
    if exact is None or exact.observed is None or exact.expected is None:
        yield f"largest error {format_sigma(rms)} {unit}"
    else:
        apart = abs(exact.observed - exact.expected)
        yield f"{exact.tensor} is {apart:.2g} off where a right layer has no rounding at all"


def _worst_of_no_rounding(record: Record) -> TensorVerdict | None:
    """The worst tensor of a record, if the error is where σ is 0, or the least number of the format in its place."""
    worst = max(record.tensors, key=lambda each: -1.0 if each.rms is None else each.rms, default=None)
    if worst is None or worst.sigma is None or worst.rms is None:
        return None
    format = FORMATS[record.dtype]
    is_exact = worst.sigma <= format.smallest_normal and worst.rms * format.roundoff > _BEYOND
    return worst if is_exact else None
