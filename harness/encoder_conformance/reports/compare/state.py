"""The state of a check in one run, in the words of a trend. Two runs agree on a check if its states are equal."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.spec.outcome import StateKind

Explanations = Mapping[tuple[str, str], tuple[str, ...]]
"""(case, dtype) → the deviations by which a diagnosis explains its failures."""


@dataclass(frozen=True)
class State:
    """`names`: the deviations that were seen, or by which a diagnosis explains the failure. `detail`: of what gave no
    answer, the exception or fault; of other failures the first stage out of line, or that values are not finite."""

    kind: StateKind
    names: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        named = " and ".join(self.names)
        match self.kind:
            case "deviates":
                return f"deviates as declared by {named}"
            case "stale":
                return "a declared deviation is not seen"
            case "out of line" if named:
                return f"out of line by {named}"
            case _:
                return f"{self.kind} ({self.detail})" if self.detail else self.kind


NOT_ASKED = State("not asked")
_LONGEST_DETAIL = 120
_NO_NUMBERS: dict[str, str] = {"non-finite": "not finite", "shape": "another shape", "dtype": "another dtype"}


def state_of(record: Record, explanations: Explanations) -> State:
    """The state of a check of which this is the record."""
    kind = record.outcome.state
    match kind:
        case "deviates":
            return State(kind, record.deviations)
        case "no answer":
            return State(kind, detail=_first_words(record))
        case "out of line":
            names = explanations.get((record.case, record.dtype), ())
            return State(kind, names, "" if names or not record.stage else _first_stage(record))
        case _:
            return State(kind)


def _first_stage(record: Record) -> str:
    """The first stage out of line, and what it is if it is no number."""
    problems = [each.problem.kind for each in record.tensors if each.tensor == record.stage and each.problem]
    return f"{_NO_NUMBERS.get(problems[0], problems[0])} at {record.stage}" if problems else f"at {record.stage}"


def _first_words(record: Record) -> str:
    """The first words of the message. What follows is of one case: numbers, shapes, a traceback."""
    first = f"{record.outcome.value}: {record.message.partition(chr(10))[0]}"
    return first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"


def explained_by(diagnoses: Iterable[Diagnosis], implementation: str) -> Explanations:
    """The deviations that the diagnoses which explain everything name, for each case and dtype that they are of."""
    return {
        (case, dtype): each.deviations
        for each in diagnoses
        if each.implementation == implementation and each.confidence == "explained"
        for dtype in each.dtype.split(", ")
        for case in each.cases
    }
