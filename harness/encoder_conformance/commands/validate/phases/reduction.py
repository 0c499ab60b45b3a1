"""Phase `reduction`: files narrower than their input: computing in float16, narrow weights, integer weights."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from encoder_conformance.commands.validate.evidence import Answers, Assessment, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.rounding.said import findings as rounding_findings
from encoder_conformance.commands.validate.rounding.said import rounding_finding, summary
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.judging.relative import relative_error
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
    subject, answers, rounding = evidence.subject, evidence.answers, evidence.rounding
    if answers is None and rounding is None:
        return Assessment(not_asked=evidence.not_rounded)
    findings = list(stages_from_operands(evidence, answers)) if answers is not None else []
    said = []
    if answers is not None and (subject.rounded_as or subject.description.stored()):
        said.append(_format(subject) + _cost(subject, answers.cases["numbers"][0]))
    if (how := subject.description.quantisation) is not None:
        said.append(f"as it is quantised: {how}")
    if rounding is not None:
        said.append(summary(rounding))
        findings += rounding_findings(rounding, subject.request.limit)
    elif subject.request.limit is not None:
        message = "--limit holds the error of a file with integer weights, and this one has none"
        findings.append(rounding_finding("note", "limit-without-integers", message))
    if evidence.not_rounded and subject.integers:
        findings.append(_not_measured(evidence))
    if fact := subject.description.fact("integers"):
        said.append(fact.evidence)
    if _is_of_float16(subject) and not said:
        said.append("float16 throughout, each stage judged from its own operands, too")
    return Assessment("; ".join(said), findings, "" if said else "its numbers are as wide as its input")


def _not_measured(evidence: ValidationEvidence) -> PhaseFinding:
    message = f"its rounding was not measured from its first input to its last output: {evidence.not_rounded}"
    return rounding_finding("warning", "rounding-not-measured", message)


def _is_of_float16(subject: ExaminedFile) -> bool:
    """Whether one layer computes in it. The stages of a stack are whole layers."""
    if not subject.is_understood or subject.layer is None or subject.layer.is_stack:
        return False
    return (subject.rounded_as or subject.dtype) == "float16"


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
    if not subject.request.parameters or subject.integers:
        return ""
    rounded, exact = evaluate(case, Arithmetic(), None).stages["output"], _exact(case, subject.request.parameters)
    compared = case.compared("output")["output"]
    error = relative_error(rounded[compared], exact[compared])
    return f"; against what it was made from, the relative error is {error:.2g} (rms, {case.situation.situation})"


def _exact(case: Case, parameters: Mapping[str, Array]) -> Array:
    """The output of a case, [B, S, D], with the parameters that the file was made from."""
    original = Case(case.layer, case.situation, held=CaseParameters.of(parameters))
    return evaluate(original, Arithmetic(), None).stages["output"]


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
        about = {"stage": stage, "runs": names, "rms": verdict.rms, "max": verdict.max, "format": computed_in}
        yield rounding_finding("error", "stage-out-of-line", message, hint, **about)


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
