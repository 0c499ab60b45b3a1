"""What no run writes: a report or a record that contradicts itself. Of a file that others have written all is asked."""

from collections.abc import Iterator

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.judging.records import Claim, Record, Report
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import is_stage


class Credible:
    """Holds the records of one report, as they come, against it and against each other."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._names = frozenset(each.name for each in report.implementations)
        self._seen = set[int]()
        """Of the keys of those before: a report may have 100,000."""

    def contradiction(self, record: Record) -> str:
        """What no run writes beside what came before; "" if it may."""
        if hash(record.key) in self._seen:
            return "it has two such records"
        self._seen.add(hash(record.key))
        if record.implementation not in self._names:
            return "its implementation is none of the report's"
        if self._report.complete and record.outcome is Outcome.NOT_RUN:
            return "the report says that it is complete, and this was not run"
        return next(_contradictions(record), "")


def contradiction_of(report: Report) -> str:
    """What no run writes beside its records; "" if there is no such thing."""
    names = [each.name for each in report.implementations]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"implementations: {twice[0]} is there twice"
    if report.complete and report.ended_by:
        return f"complete: it is, and was ended by the {report.ended_by}"
    for key in ("diagnoses", "shown", "suspicious"):
        for each in getattr(report, key):
            if each.implementation not in names:
                return f"{key}: {each.implementation!r} is none of its implementations"
    claimed = (claim for each in report.diagnoses for claim in each.observed if isinstance(claim, Claim))
    return next((f"diagnoses: no claim {each.kind!r} has these values" for each in claimed if not _is_said(each)), "")


def _is_said(claim: Claim) -> bool:
    """Whether it has a sentence."""
    try:
        return bool(sentence(claim))
    except (KeyError, TypeError, ValueError):
        return False


def _contradictions(record: Record) -> Iterator[str]:
    for key in ("rms", "max", "seconds", "predicting", "distance"):
        number = getattr(record, key)
        if number is not None and number < 0:
            yield f"{key}: {number:g} is below 0"
    if record.check in ("output", "stages"):
        if record.stage and not is_stage(record.stage):
            yield f"stage: {record.stage!r} is none of an encoder"
        if unknown := [each.tensor for each in record.tensors if not is_stage(each.tensor)]:
            yield f"tensors: {unknown[0]!r} is no stage of an encoder"
    for tensor in record.tensors:
        if record.outcome is Outcome.PASS and not tensor.conforms:
            yield f"tensors: {tensor.tensor} does not conform, and the check passes"
        if problem := _incomplete(tensor):
            yield f"tensors: {tensor.tensor}: {problem}"


def _incomplete(tensor: TensorVerdict) -> str:
    """What a tensor lacks that was compared; numbers below 0 are none."""
    if tensor.problem is not None:
        return "it conforms, and could not be compared" if tensor.conforms else ""
    if tensor.rms is None or tensor.max is None:
        return "it has no rms or no max, and no problem"
    if min(tensor.rms, tensor.max, tensor.sigma or 0) < 0:
        return "an error is below 0"
    of_worst = (tensor.worst_index, tensor.observed, tensor.expected, tensor.sigma)
    return "it has a part of its worst element" if len({each is None for each in of_worst}) > 1 else ""
