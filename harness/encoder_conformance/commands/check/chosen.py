"""Choices that a layer has no key for: the number that hides a position, and the formula of a variance.

Where a module that nobody stated is right but for these, it does what its owner wrote. That is verified, and said in a
warning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.judging.loop import Unseen, judge
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.subjects.subject import Subject

_OUTBID = "with scores of ten million it is outbid"
_CANCELLED = "where features are far from zero little of the variance is left"
CHOICES = {
    **dict.fromkeys(("mask-filled-minus-1e9", "mask-added-minus-1e9", "mask-filled-lowest"), _OUTBID),
    **dict.fromkeys(("mask-filled-minus-1e20", "mask-added-minus-1e12", "mask-filled-minus-1e4"), _OUTBID),
    "mask-added-minus-1e4": _OUTBID,
    "norm-fast-variance": _CANCELLED,
}
"""What hides, of the scores that occur, and a variance as E[x²] − E[x]² → where it shows. −10 is none: it leaves a part
of what it hides."""
_ORDER = [*CHOICES]


@dataclass(frozen=True)
class Chosen:
    """The deviations that are chosen, the records with those that they explain, and what is said of it."""

    names: tuple[str, ...]
    records: tuple[Record, ...]
    finding: Finding


def chosen(
    subject: Subject,
    cases: Sequence[Case],
    records: Sequence[Record],
    diagnoses: Sequence[Diagnosis],
    expected: Callable[[Case], Expected],
) -> Chosen | None:
    """None where another cause is left, or nothing failed. What failed is asked again, as the choices predict it."""
    failed = [record for record in records if record.outcome not in EXPECTED]
    fitting = [_choices_of(each) for each in diagnoses]
    if not failed or not fitting or not all(fitting):
        return None
    for names in _tried(fitting):
        if found := judged_with(names, subject, cases, records, expected):
            return found
    return None


def judged_with(
    names: Sequence[str],
    subject: Subject,
    cases: Sequence[Case],
    records: Sequence[Record],
    expected: Callable[[Case], Expected],
) -> Chosen | None:
    """What failed, asked again and judged as these deviations predict it; None where that does not explain all."""
    assert subject.implementation is not None
    failed = {record.case for record in records if record.outcome not in EXPECTED}
    asked = {(record.dtype, record.check) for record in records}
    known = subject.implementation.model_copy(update={"deviations": declared_from(names)})
    again = Subject(**{**vars(subject), "implementation": known})
    tasks = again.tasks([case for case in cases if case.id in failed])
    tasks = [task for task in tasks if (task.dtype, task.check) in asked]
    found = {answer.record.key: answer.record for answer in judge(again, tasks, expected, Unseen())}
    replaced = tuple(found.get(record.key, record) for record in records)
    if all(record.outcome in EXPECTED for record in replaced):
        return Chosen(tuple(names), replaced, _finding(names, len(failed)))
    return None


def _tried(fitting: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[list[str]]:
    """What every diagnosis names; then all that any of them does, for one format may not show what another does."""
    shared = set.intersection(*map(set, fitting))
    yield from (list(names) for names in sorted(shared, key=lambda names: (len(names), *map(_ORDER.index, names))))
    every = sorted({name for several in fitting for name in several[0]}, key=_ORDER.index)
    if tuple(every) not in shared:
        yield every


def _choices_of(diagnosis: Diagnosis) -> tuple[tuple[str, ...], ...]:
    """The choices that explain it, one or several together; () where something else is needed, too."""
    found = (diagnosis.deviations, *diagnosis.indistinguishable) if diagnosis.confidence == "explained" else ()
    return tuple(several for several in found if several and set(several) <= CHOICES.keys())


def _finding(names: Sequence[str], cases: int) -> Finding:
    said = "; ".join(f"{name}: {catalogue()[name].sentence.rstrip('.')}" for name in names)
    shown = "; ".join(dict.fromkeys(CHOICES[name] for name in names))
    hint = f"{shown}, and so in {cases} of the situations: it is judged as that there"
    return Finding(severity="warning", message=f"a choice of its own, {said}", hint=hint)
