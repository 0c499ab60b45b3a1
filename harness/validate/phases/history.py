"""Phase `history`: no answer depends on what was asked before; a script shows one that does in the runtime alone."""

from collections.abc import Iterator

from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.validate.runtimes import RuntimeRun
from encoder_conformance.wire.findings import PhaseFinding


def assess(evidence: Evidence) -> Assessment:
    answers = evidence.answers
    if answers is None:
        return Assessment()
    asked = [run for run in answers.runs if run.asked_history]
    if not asked:
        return Assessment()
    wrong = [run for run in asked if run.dependence is not None]
    said = f"{len(asked) - len(wrong)} of {len(asked)} runtimes and levels answer the same, whatever was asked before"
    return Assessment(said, _findings(wrong))


def _findings(wrong: list[RuntimeRun]) -> Iterator[PhaseFinding]:
    for run in wrong:
        hint = "a runtime that keeps something of an earlier size is to be loaded anew for each, or not to be used"
        if run.history_script:
            hint = f"{run.history_script} shows it in the runtime alone; {hint}"
        message = f"{run.name}: {run.dependence}"
        yield PhaseFinding(phase="history", severity="error", message=message, hint=hint, runtimes=(run.name,))
