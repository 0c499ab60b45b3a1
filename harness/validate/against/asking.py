"""Opens the source of a file for the time of a validation, and asks it what the file was asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from encoder_conformance.progress import Progress
from encoder_conformance.validate.against.comparison import Compared, compare_answers
from encoder_conformance.validate.against.opening import Named, open_source
from encoder_conformance.validate.against.source import Source
from encoder_conformance.validate.evidence import Answers, Array, Subject, distinct


@contextmanager
def opened(wanted: Named, subject: Subject, logs: Path, progress: Progress) -> Iterator[tuple[Subject, Source]]:
    """The source, and the subject that is held against its layer and its parameters."""
    request = subject.request
    progress.begin("looking into the source", 1)
    source = open_source(wanted, subject.description.layer, subject.parameters, request.pythons, logs)
    progress.step("looked into the source")
    try:
        stated = replace(
            request,
            layer=request.layer or source.layer,
            parameters=request.parameters if request.parameters is not None else _parameters(source, subject),
        )
        yield replace(subject, request=stated), source
    finally:
        if source.session is not None:
            source.session.close()


def _parameters(source: Source, subject: Subject) -> dict[str, Array]:
    """The source's, and the file's own where the source has none: that is said, and nothing is compared."""
    return {name: source.parameters.get(name, value) for name, value in subject.parameters.items()}


def compared_with(source: Source, subject: Subject, answers: Answers, progress: Progress) -> list[Compared]:
    """What the first run that works and the source both answered. Both are given the file's own parameters, so that
    what differs is the computation: the values are compared by themselves."""
    run = answers.first_working
    if run is None or source.session is None:
        return []
    cases = distinct({phase: cases for phase, cases in answers.cases.items() if phase != "properties"})
    progress.begin(f"asking {source.name}", len(cases))
    theirs = source.answers(cases, answers.expected, subject.dtype, progress.step)
    return compare_answers(cases, answers.expected, run.answers, theirs, subject.format)
