"""Phase `loads`: the runtimes and levels that load the file."""

from collections.abc import Iterator

from encoder_conformance.impl.interpreter import Missing
from encoder_conformance.validate.evidence import Answers, Assessment, Evidence
from encoder_conformance.validate.findings import Finding


def assess(evidence: Evidence) -> Assessment:
    answers = evidence.answers
    if answers is None:
        return Assessment()
    asked = [run for run in answers.runs if run.answers]
    return Assessment(f"{len(answers.working)} of {len(asked)} runtimes and levels", _findings(answers))


def _findings(answers: Answers) -> Iterator[Finding]:
    for run in answers.runs:
        if isinstance(run.found, Missing):
            message = f"{run.name} was not asked: {run.found.reason}"
            yield Finding(phase="loads", severity="note", message=message, hint=run.found.hint)
        elif run.failure:
            yield Finding(phase="loads", severity="error", message=f"{run.name}: {run.failure}")
