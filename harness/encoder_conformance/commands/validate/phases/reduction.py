"""Phase `reduction`: files narrower than their input: computing in float16, narrow weights, integer weights."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from encoder_conformance.commands.validate.evidence import Answers, Assessment, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.judging.simulate import continued_with_noise
from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.size import is_large


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
    if _is_of_float16(subject) and not said:
        said.append("float16 throughout, each stage judged from its own operands, too")
    return Assessment("; ".join(said), findings, "" if said else "its numbers are as wide as its input")


def _is_of_float16(subject: ExaminedFile) -> bool:
    """Whether one layer computes in it. The stages of a stack are whole layers."""
    computed_in = subject.rounded_as or subject.dtype
    return computed_in == "float16" and subject.layer is not None and not subject.layer.is_stack


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
    rounded, exact = evaluate(case, Arithmetic(), None).stages["output"], _exact(case, subject.request.parameters)
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
            golden = _exact(case, source).reshape(-1)[expected.positions].astype(np.float64)
        for run in answers.of_the_file:
            answer = run.answers.get((case.id, "output"))
            if answer is None or answer.tensors is None or answer.tensors["output"].shape != expected.shape:
                continue
            values = answer.tensors["output"].reshape(-1)[expected.positions].astype(np.float64)
            error = _relative_error(values, golden)
            if not error <= found.get(run.name, (-1.0, ""))[0]:  # NaN is the worst
                found[run.name] = error, case.situation.situation
    return found


def _exact(case: Case, parameters: Mapping[str, Array]) -> Array:
    """The output of a case, [B, S, D], with the parameters that the file was made from."""
    original = Case(case.layer, case.situation, held=CaseParameters.of(parameters))
    return evaluate(original, Arithmetic(), None).stages["output"]


def _relative_error(values: Array, expected: Array) -> float:
    """Root mean square of the error over that of the expected values."""
    return float(np.sqrt(np.mean((values - expected) ** 2) / np.mean(expected**2)))


def stages_from_operands(evidence: ValidationEvidence, answers: Answers) -> Iterator[PhaseFinding]:
    """The first stage out of line of each run, where the layer as a whole is in line."""
    subject = evidence.subject
    computed_in = subject.rounded_as or subject.dtype
    if not _is_of_float16(subject):
        return
    assert subject.layer is not None
    format = FORMATS[subject.dtype].computed_in(FORMATS[computed_in])
    runs = answers.working[:1] if is_large(subject.layer) else answers.working
    found: dict[str, tuple[TensorVerdict, list[str]]] = {}
    for run in runs:
        if verdict := _first_out_of_line(run, answers, format):
            found.setdefault(verdict.tensor, (verdict, []))[1].append(run.name)
    for stage, (verdict, names) in found.items():
        problem = verdict.problem.text if verdict.problem else f"rms {verdict.rms:.3g} σ, max {verdict.max:.3g} σ"
        anchor = evidence.description.stages.get(stage)
        hint = f"it is made by {anchor.node} ({anchor.tensor}); " if anchor else ""
        hint += "float16's converter leaves in float32 what op_block_list or node_block_list names"
        out = f"{stage}, from its own operands, is out of what {computed_in} explains"
        message = f"{out}: {problem} ({', '.join(names)})"
        yield PhaseFinding(phase="reduction", severity="error", message=message, hint=hint)


def _first_out_of_line(run: RuntimeRun, answers: Answers, format: Format) -> TensorVerdict | None:
    """None where a layer fails as a whole, too: that is told in `numbers`."""
    asked = [(case, run.answers.get((case.id, "stages"))) for case in answers.cases["numbers"]]
    if any(answer is not None and answer.record.outcome != Outcome.PASS for _, answer in asked):
        return None
    given = ((case, answer.tensors) for case, answer in asked if answer and answer.tensors)
    verdicts = (verdict for case, stages in given for verdict in _verdicts(case, stages, answers, format))
    return next((verdict for verdict in verdicts if not verdict.conforms), None)


def _verdicts(case: Case, stages: dict[str, Array], answers: Answers, format: Format) -> Iterator[TensorVerdict]:
    seen = {name: value.astype(np.float64) for name, value in stages.items()}
    right, conditions = continued_with_noise(case, (), seen)
    for name, value in right.items():
        if name in stages:
            kept = answers.expected[case.id].tensors[name]
            golden, condition = (each.reshape(-1)[kept.positions] for each in (value, conditions[name]))
            expected = ExpectedTensor(kept.shape, kept.positions, golden, np.nan_to_num(condition))
            yield judge_tensor(name, stages[name], expected, format)
