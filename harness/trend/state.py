"""What a check came to in one run, in the words of a trend. Two runs agree on a check if its states are equal."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.results import Diagnosis, Record

Kind = Literal["conforms", "deviates", "stale", "out of line", "no answer", "not asked"]
Named = Mapping[tuple[str, str], tuple[str, ...]]
"""(case, dtype) → the deviations by which a diagnosis explains its failures."""


@dataclass(frozen=True)
class State:
    """`names`: the deviations that were seen, or by which a diagnosis explains the failure. `detail`: of what gave no
    answer, the exception or fault; of other failures the first stage out of line, or that values are not finite."""

    kind: Kind
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


def state_of(record: Record, named: Named) -> State:
    match record.outcome:
        case Outcome.PASS:
            return State("conforms")
        case Outcome.DEVIATES:
            return State("deviates", record.deviations)
        case Outcome.UNSUPPORTED | Outcome.NOT_RUN:
            return NOT_ASKED
        case Outcome.STALE:
            return State("stale")
        case Outcome.ERROR | Outcome.CRASH | Outcome.TIMEOUT:
            return State("no answer", detail=_detail(record))
        case Outcome.FAIL | Outcome.INCONCLUSIVE:
            names = named.get((record.case, record.dtype), ())
            return State("out of line", names, "" if names or not record.stage else _where(record))


def _where(record: Record) -> str:
    """The first stage out of line, and what it is if it is no number."""
    problems = [each.problem.kind for each in record.tensors if each.tensor == record.stage and each.problem]
    return f"{_NO_NUMBERS.get(problems[0], problems[0])} at {record.stage}" if problems else f"at {record.stage}"


def _detail(record: Record) -> str:
    """The first words of the message. What follows is of one case: numbers, shapes, a traceback."""
    first = f"{record.outcome.value}: {record.message.partition(chr(10))[0]}"
    return first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"


def named_by(diagnoses: Iterable[Diagnosis], implementation: str) -> Named:
    """What the diagnoses that explain everything name, for each case and dtype that they are of."""
    return {
        (case, dtype): each.deviations
        for each in diagnoses
        if each.implementation == implementation and each.confidence == "explained"
        for dtype in each.dtype.split(", ")
        for case in each.cases
    }
