"""Phase `reduction`: files narrower than their input: computing in float16, narrow weights, integer weights."""

from collections import Counter

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.validate.evidence import Answers, Array, Assessment, Evidence, Subject
from encoder_conformance.validate.findings import Finding


def assess(evidence: Evidence) -> Assessment:
    subject, answers = evidence.subject, evidence.answers
    if answers is None:
        return Assessment()
    if subject.is_quantised:
        return _integer_weights(answers, subject.request.limit)
    if not subject.rounded_as and not subject.description.stored():
        return Assessment()
    return Assessment(_format(subject) + _cost(subject, answers.cases["numbers"][0]))


def _format(subject: Subject) -> str:
    """Narrow weights alone do not make the arithmetic narrow: their roundoff would excuse what their rounding cannot
    cause."""
    if subject.rounded_as:
        return f"computes in {subject.rounded_as}, and is judged by its roundoff"
    counts = Counter(subject.description.stored().values())
    stored = ", ".join(f"{n} of {len(subject.parameters)} parameters as {name}" for name, n in counts.items())
    by = f"computes in {subject.dtype}, and is judged by its roundoff with the weights as they are stored"
    return f"stores {stored}; {by}"


def _cost(subject: Subject, case: Case) -> str:
    """How far the file's weights take the output from that of the weights that they are rounded from."""
    if not subject.request.parameters:
        return ""
    original = Case(case.layer, case.situation, held=CaseParameters.of(subject.request.parameters))
    rounded, exact = (evaluate(each, Arithmetic(), None).stages["output"] for each in (case, original))
    compared = case.compared("output")["output"]
    error = _relative_error(rounded[compared], exact[compared])
    return f"; against what it was made from, the relative error is {error:.2g} (rms, {case.situation.situation})"


def _integer_weights(answers: Answers, limit: float | None) -> Assessment:
    """The largest relative error of any run and case; σ is of floating-point arithmetic."""
    worst, where = 0.0, ""
    for run in answers.runs:
        for case in answers.cases["numbers"]:
            answer, expected = run.answers.get((case.id, "output")), answers.expected[case.id].tensors["output"]
            if answer is None or answer.answers is None or answer.answers["output"].shape != expected.shape:
                continue
            values = answer.answers["output"].reshape(-1)[expected.positions].astype(np.float64)
            error = _relative_error(values, expected.golden)
            if not error <= worst:  # NaN is the worst
                worst, where = error, f"{case.situation.situation}, {run.name}"
    summary = f"integer weights: relative error {worst:.2g} (rms, {where})"
    if limit is None:
        hint = "--limit makes a larger one an error"
        return Assessment(summary, [Finding(phase="reduction", severity="note", message=summary, hint=hint)])
    if worst <= limit:
        return Assessment(f"{summary}, within {limit:g}")
    message = f"{summary}, over the limit of {limit:g}"
    return Assessment(summary, [Finding(phase="reduction", severity="error", message=message)])


def _relative_error(values: Array, expected: Array) -> float:
    """Root mean square of the error over that of the expected values."""
    return float(np.sqrt(np.mean((values - expected) ** 2) / np.mean(expected**2)))
