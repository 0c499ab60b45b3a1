"""A file against its source: opens that for the time of a validation, and asks it what the file was asked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from encoder_conformance.commands.validate.evidence import Answers, Compared, ExaminedFile, distinct
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.difference import differences
from encoder_conformance.judging.loop import judge
from encoder_conformance.platform.progress import Progress
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.subjects.opening import open_source
from encoder_conformance.subjects.subject import Subject, SubjectRequest, layer_as_judged
from encoder_conformance.worker.session import Session


@contextmanager
def opened(
    wanted: SubjectRequest, file: ExaminedFile, session: Session | None, progress: Progress
) -> Iterator[tuple[ExaminedFile, Subject]]:
    """The source in its session, and the file that is held against its layer and its parameters."""
    request = file.request
    progress.begin("looking into the source", 1)
    with closing(open_source(wanted, file.parameters, session, file.description.layer)) as source:
        progress.step("looked into the source")
        read = source.layer and layer_as_judged(source.layer, "", stated=False)
        parameters = request.parameters
        if parameters is None:  # the file's own where the source has none: that is said, and nothing is compared
            parameters = {name: source.parameters.get(name, value) for name, value in file.parameters.items()}
        stated = replace(request, layer=request.layer or read, parameters=parameters)
        yield replace(file, request=stated), source


@dataclass(frozen=True)
class SourceAnswers:
    """What the source answers to the `cases` that the file was asked, by case and check, and what a diagnosis needs of
    that."""

    cases: Sequence[Case]
    by_check: Mapping[tuple[str, str], JudgedAnswer]
    seen: Observations


def asked_alike(source: Subject, file: ExaminedFile, answers: Answers, progress: Progress) -> SourceAnswers | None:
    """The source asked what the file was, with the file's own parameters, so that what differs is the computation; None
    where no run of the file works or the source computes nothing."""
    if answers.first_working is None or source.session is None:
        return None
    every_case = distinct({phase: cases for phase, cases in answers.cases.items() if phase != "properties"})
    progress.begin(f"asking {source.name}", len(every_case))
    dtype, seen = _format_of(source, file.dtype), Observations()
    cases = [replace(case, situation=case.situation.model_copy(update={"dtypes": (dtype,)})) for case in every_case]
    asked = (task for task in source.tasks(cases, (dtype,)) if task.check in ("output", "stages"))
    theirs: dict[tuple[str, str], JudgedAnswer] = {}
    for answer in judge(source, asked, lambda case: answers.expected[case.id], seen):
        theirs[answer.task.case.id, answer.task.check] = answer
        progress.step(f"{source.name} {answer.task.case.id}")
    return SourceAnswers(cases, theirs, seen)


def compared(answers: Answers, theirs: SourceAnswers) -> list[Compared]:
    """The answers that the first run that works and the source both gave, compared."""
    run = answers.first_working
    return [] if run is None else list(_compared(theirs.cases, run.answers, theirs.by_check))


def _compared(
    cases: Iterable[Case], ours: Mapping[tuple[str, str], JudgedAnswer], theirs: Mapping[tuple[str, str], JudgedAnswer]
) -> Iterator[Compared]:
    """What both answered to these cases, compared. The format of the file has the wider noise."""
    for case in cases:
        for check in case.situation.checks:
            one, two = ours.get((case.id, check)), theirs.get((case.id, check))
            if one and two and (verdicts := tuple(differences(one, two))):
                off = one.record.outcome not in EXPECTED, two.record.outcome not in EXPECTED
                yield Compared(case, check, verdicts, off)


def _format_of(source: Subject, asked: DtypeName) -> DtypeName:
    """The format to ask it in: that of the file, if it computes in it; else the next wider one."""
    assert source.implementation is not None
    known = source.implementation.capabilities.dtypes
    if asked in known:
        return asked
    return min(known, key=lambda name: (FORMATS[name].roundoff > FORMATS[asked].roundoff, -FORMATS[name].roundoff))
