"""Choices that a file and its source both make, and that a layer has no key for: the file is judged as those there.

A module that makes such a choice is right, with a warning (`conform check`), and so is a file that is what it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from encoder_conformance.commands.check.chosen import chosen
from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.commands.validate.against import SourceAnswers, compared
from encoder_conformance.commands.validate.evidence import Answers, Compared
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.loop import judged_as
from encoder_conformance.judging.records import Record
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.subjects.plan import plan
from encoder_conformance.subjects.subject import Subject

_Rejudged = dict[tuple[str, str], JudgedAnswer]
"""By case and check."""


@dataclass(frozen=True)
class SameChoice:
    """The deviations that both choose, the answers compared as those predict them, and what is said of it."""

    names: tuple[str, ...]
    compared: Sequence[Compared]
    finding: PhaseFinding


def same_choice(source: Subject, answers: Answers, theirs: SourceAnswers) -> SameChoice | None:
    """None where the source is right without, or something else is wrong in it or in any run of the file. Otherwise
    these runs are judged anew."""
    runs = [run for run in answers.in_sigma if run.is_working]
    if all(run.conforms for run in runs):
        return None
    records = [each.record for each in theirs.by_check.values()]
    if all(record.outcome in EXPECTED for record in records):
        return None
    explained = theirs.seen.diagnoses(source.name)
    found = chosen(source, theirs.cases, records, explained, lambda case: answers.expected[case.id])
    if found is None:
        return None
    rejudged = [_as_predicted(run, found.names) for run in runs]
    if not all(each.record.outcome in EXPECTED for of_run in rejudged for each in of_run.values()):
        return None
    for run, of_run in zip(runs, rejudged, strict=True):
        run.answers.update(of_run)
    outcomes: dict[tuple[str, str], Record] = {(record.case, record.check): record for record in found.records}
    anew = {key: replace(each, record=outcomes[key]) for key, each in theirs.by_check.items()}
    message = f"in the file as in {source.name}: {found.finding.message}"
    said = PhaseFinding(phase="source", **{**dict(found.finding), "message": message})
    return SameChoice(found.names, compared(answers, replace(theirs, by_check=anew)), said)


def _as_predicted(run: RuntimeRun, names: Sequence[str]) -> _Rejudged:
    """What failed in a run, judged as these deviations predict it; as it was, where they predict nothing of it."""
    return dict(_judged_anew(run, names, {key: each for key, each in run.answers.items() if _failed(each)}))


def _judged_anew(
    run: RuntimeRun, names: Sequence[str], failed: Mapping[tuple[str, str], JudgedAnswer]
) -> Iterator[tuple[tuple[str, str], JudgedAnswer]]:
    assert isinstance(run.found, Ready)
    known = run.found.implementation.model_copy(update={"deviations": declared_from(names)})
    cases = list({each.task.case.id: each.task.case for each in failed.values()}.values())
    tasks = {(task.case.id, task.dtype, task.check): task for task in plan(known, cases)}
    for key, each in failed.items():
        task = replace(tasks[key[0], each.task.dtype, each.task.check], rounded_as=each.task.rounded_as)
        is_judged = isinstance(each.answer.result, Mapping) and task.opt_out is None
        yield key, judged_as(each, task) if is_judged else each


def _failed(answer: JudgedAnswer) -> bool:
    return answer.record.outcome not in EXPECTED
