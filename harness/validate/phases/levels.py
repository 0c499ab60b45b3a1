"""Phase `levels`: runtimes and levels against each other. Optimisation may change numbers within the noise, √2 σ."""

from collections.abc import Iterator

import numpy as np

from encoder_conformance.golden.narrow import in_format
from encoder_conformance.judge.difference import difference
from encoder_conformance.judge.expected import ExpectedTensor
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.spec.case import Case
from encoder_conformance.validate.evidence import Answers, Array, Assessment, Evidence, distinct
from encoder_conformance.validate.runtimes import RuntimeRun
from encoder_conformance.wire.findings import PhaseFinding

Difference = tuple[str, TensorVerdict]
"""A case, and the verdict on the difference there."""


def assess(evidence: Evidence) -> Assessment:
    answers = evidence.answers
    if answers is None or evidence.subject.integers:
        return Assessment()
    if len(answers.working) < 2:
        return Assessment("one runtime and level alone; nothing to compare")
    first = answers.working[0].name
    largest = _largest_differences(answers, evidence)
    verdicts = [verdict for _, verdict in largest.values()]
    rms = max((verdict.rms or 0.0 for verdict in verdicts), default=0.0)
    summary = f"{len(answers.working)} runtimes and levels, largest difference rms {rms:.2g} √2 σ"
    if equal := sum(1 for verdict in verdicts if not verdict.max):
        summary += f", {equal} with the same bits as {first}"
    return Assessment(summary, _findings(largest, first))


def _findings(largest: dict[str, Difference], first: str) -> Iterator[PhaseFinding]:
    for name, (case, verdict) in largest.items():
        if not verdict.conforms:
            problem = verdict.problem or f"rms {verdict.rms or 0:.3g} √2 σ, max {verdict.max or 0:.3g} √2 σ"
            message = f"{name} and {first} differ in {case}: {problem}"
            hint = "deploy with a level that is right (SessionOptions.graph_optimization_level), or name what it fuses "
            hint += "in disabled_optimizers"
            yield PhaseFinding(phase="levels", severity="error", message=message, hint=hint, runtimes=(name,))


def _largest_differences(answers: Answers, evidence: Evidence) -> dict[str, Difference]:
    """Run → the case where its output is furthest from the first run's, and how far, in √2 σ."""
    first, *others = answers.working
    largest: dict[str, Difference] = {}
    format = evidence.subject.format
    for run in others:
        for case in distinct(answers.cases):
            if "output" not in answers.expected[case.id].tensors:  # properties have no expected result
                continue
            expected = in_format(case, answers.expected[case.id], format).tensors["output"]
            mine, theirs = (_output(each, case, expected) for each in (first, run))
            if mine is None or theirs is None:
                continue
            verdict = difference(run.name, theirs, mine, expected, format)
            if run.name not in largest or (verdict.rms or 0.0) > (largest[run.name][1].rms or 0.0):
                largest[run.name] = case.id, verdict
    return largest


def _output(run: RuntimeRun, case: Case, expected: ExpectedTensor) -> Array | None:
    """The output, if it is finite and of the right shape; any other is a finding elsewhere."""
    answer = run.answers.get((case.id, "output"))
    if answer is None or answer.tensors is None:
        return None
    output = answer.tensors["output"]
    if output.shape != expected.shape or not np.isfinite(output.reshape(-1)[expected.positions]).all():
        return None
    return output
