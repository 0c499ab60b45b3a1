"""Phase `reduction`: files narrower than their input: computing in float16, narrow weights, integer weights."""

from collections import Counter

import numpy as np

from encoder_conformance.commands.validate.evidence import Array, Assessment, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.own_operands import stages_from_operands
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters


def assess(evidence: ValidationEvidence) -> Assessment:
    subject, answers = evidence.subject, evidence.answers
    if answers is None:
        return Assessment()
    findings = list(stages_from_operands(evidence, answers))
    said = []
    if subject.rounded_as or subject.description.stored():
        said.append(_format(subject) + _cost(subject, answers.cases["numbers"][0]))
    if subject.integers:
        summary, more = _relative(evidence)
        said.append(summary)
        findings += more
    elif subject.request.limit is not None:
        message = "--limit holds the error of a file with integer weights, and this one has none"
        findings.append(PhaseFinding(phase="reduction", severity="note", message=message))
    if fact := subject.description.fact("integers"):
        said.append(fact.evidence)
    return Assessment("; ".join(said), findings)


def _format(subject: ExaminedFile) -> str:
    """Narrow weights alone do not make the arithmetic narrow: their roundoff would excuse what their rounding cannot
    cause."""
    if subject.rounded_as:
        return f"computes in {subject.rounded_as}, and is judged by its roundoff"
    counts = Counter(subject.description.stored().values())
    stored = ", ".join(f"{n} of {len(subject.parameters)} parameters as {name}" for name, n in counts.items())
    by = f"computes in {subject.dtype}, and is judged by its roundoff with the weights as they are stored"
    if subject.description.quantised:
        by = f"rounds activations to integers, and is judged in {subject.dtype} by the numbers that they stand for"
    return f"stores {stored}; {by}" if stored else by


def _cost(subject: ExaminedFile, case: Case) -> str:
    """How far the file's weights take the output from that of the weights that they are rounded from."""
    if not subject.request.parameters:
        return ""
    original = Case(case.layer, case.situation, held=CaseParameters.of(subject.request.parameters))
    rounded, exact = (evaluate(each, Arithmetic(), None).stages["output"] for each in (case, original))
    compared = case.compared("output")["output"]
    error = _relative_error(rounded[compared], exact[compared])
    return f"; against what it was made from, the relative error is {error:.2g} (rms, {case.situation.situation})"


def _relative(evidence: ValidationEvidence) -> tuple[str, list[PhaseFinding]]:
    """The largest relative error of any run, which `--limit` holds."""
    subject = evidence.subject
    errors, limit = relative_errors(evidence), subject.request.limit
    run = max(errors, key=lambda name: np.nan_to_num(errors[name][0], nan=np.inf), default="")
    worst, situation = errors.get(run, (0.0, ""))
    against = "what it was made from" if subject.request.parameters else "the numbers that its integers stand for"
    text = f"relative error {worst:.2g} against {against} (rms, {situation}, {run})"
    if limit is None:
        message, hint = "no limit was given: any relative error passes", "--limit makes a larger one an error"
        return text, [PhaseFinding(phase="reduction", severity="note", message=message, hint=hint)]
    if worst <= limit:
        return f"{text}, within {limit:g}", []
    return text, [PhaseFinding(phase="reduction", severity="error", message=f"{text}, over the limit of {limit:g}")]


def relative_errors(evidence: ValidationEvidence) -> dict[str, tuple[float, str]]:
    """Run → its largest relative error and the situation, of a file with integers: against what the file was made
    from, where that is stated, else against the numbers that its integers stand for."""
    subject, answers = evidence.subject, evidence.answers
    found: dict[str, tuple[float, str]] = {}
    for case in answers.cases["numbers"] if answers and subject.integers else ():
        assert answers is not None
        expected = answers.expected[case.id].tensors["output"]
        golden = expected.golden
        if source := subject.request.parameters:
            original = Case(case.layer, case.situation, held=CaseParameters.of(source))
            exact = evaluate(original, Arithmetic(), None).stages["output"]
            golden = exact.reshape(-1)[expected.positions].astype(np.float64)
        for run in answers.of_the_file:
            answer = run.answers.get((case.id, "output"))
            if answer is None or answer.tensors is None or answer.tensors["output"].shape != expected.shape:
                continue
            values = answer.tensors["output"].reshape(-1)[expected.positions].astype(np.float64)
            error = _relative_error(values, golden)
            if not error <= found.get(run.name, (-1.0, ""))[0]:  # NaN is the worst
                found[run.name] = error, case.situation.situation
    return found


def _relative_error(values: Array, expected: Array) -> float:
    """Root mean square of the error over that of the expected values."""
    return float(np.sqrt(np.mean((values - expected) ** 2) / np.mean(expected**2)))
