"""Choices that a layer has no key for, as the number that hides a position: where a module that nobody stated is right
but for one of these, it does what its owner wrote. That is verified, and said in a warning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.subjects.subject import Subject

CHOICES = (
    *("mask-filled-minus-1e9", "mask-added-minus-1e9", "mask-filled-lowest", "mask-filled-minus-1e20"),
    *("mask-added-minus-1e12", "mask-filled-minus-1e4", "mask-added-minus-1e4"),
)
"""What hides, of the scores that occur. −10 is none: it leaves a part of what it hides."""


class _Unseen:
    """Keeps nothing: what was asked first has been diagnosed."""

    def note(self, *_: object) -> None: ...

    def see(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Chosen:
    """The records with those that a choice explains, and what is said of it."""

    records: tuple[Record, ...]
    finding: Finding


def chosen(
    subject: Subject,
    cases: Sequence[Case],
    records: Sequence[Record],
    diagnoses: Sequence[Diagnosis],
    expected: Callable[[Case], Expected],
) -> Chosen | None:
    """None where another cause is left, or nothing failed. What failed is asked again, as the choice predicts it."""
    failed = {record.case for record in records if record.outcome not in EXPECTED}
    if not failed or not diagnoses or any(not _choices_of(each) for each in diagnoses):
        return None
    assert subject.implementation is not None
    for name in sorted(set.intersection(*(set(_choices_of(each)) for each in diagnoses)), key=CHOICES.index):
        known = subject.implementation.model_copy(update={"deviations": declared_from([name])})
        again = Subject(**{**vars(subject), "implementation": known})
        tasks = again.tasks([case for case in cases if case.id in failed])
        found = {answer.record.key: answer.record for answer in judge(again, tasks, expected, _Unseen())}
        replaced = tuple(found.get(record.key, record) for record in records)
        if all(record.outcome in EXPECTED for record in replaced):
            return Chosen(replaced, _finding(name, len(failed)))
    return None


def _choices_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Those of the choices that explain it, alone."""
    fitting = (diagnosis.deviations, *diagnosis.indistinguishable) if diagnosis.confidence == "explained" else ()
    return tuple(name for several in fitting if len(several) == 1 for name in several if name in CHOICES)


def _finding(name: str, cases: int) -> Finding:
    sentence = catalogue()[name].sentence.rstrip(".")
    message = f"a choice of its own, {name}: {sentence}"
    hint = f"with scores of ten million it is outbid, and so in {cases} of the situations: it is judged as that there"
    return Finding(severity="warning", message=message, hint=hint)
