"""Phase `loads`: the runtimes and levels that load the file."""

from collections.abc import Iterator

from encoder_conformance.impl.interpreter import Missing
from encoder_conformance.validate.evidence import Answers, Assessment, Evidence
from encoder_conformance.validate.fault import lacks_operators
from encoder_conformance.wire.description import FileDescription
from encoder_conformance.wire.findings import PhaseFinding


def assess(evidence: Evidence) -> Assessment:
    answers = evidence.answers
    if answers is None:
        return Assessment()
    asked = [run for run in answers.of_the_file if run.answers]
    working = [run for run in asked if run.is_working]
    return Assessment(f"{len(working)} of {len(asked)} runtimes and levels", _findings(answers, evidence.description))


def _findings(answers: Answers, description: FileDescription) -> Iterator[PhaseFinding]:
    for run in answers.runs:  # also of the numbers that integers stand for: where they do not run, nothing is judged
        if isinstance(run.found, Missing):
            message = f"{run.name} was not asked: {run.found.reason}"
            yield PhaseFinding(phase="loads", severity="note", message=message, hint=run.found.hint)
        elif lacks_operators(run, description):
            message = f"{run.name} has not all of its operators, which are ONNX Runtime's own"
            hint = f"{run.failure}; the file runs in ONNX Runtime alone"
            yield PhaseFinding(phase="loads", severity="note", message=message, hint=hint, runtimes=(run.name,))
        elif run.failure:
            message = f"{run.name}: {run.failure}"
            yield PhaseFinding(phase="loads", severity="error", message=message, runtimes=(run.name,))
