"""Judges each stage of a float16 file from its own operands: what the stage should be, given the stages before it.

Along a whole layer float16 makes so much noise that a wrong GELU is lost in it. One step makes little.
"""

from collections.abc import Iterator

import numpy as np

from encoder_conformance.commands.validate.evidence import Answers, Array, ValidationEvidence
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.judging.simulate import continued_with_noise
from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.size import is_large


def stages_from_operands(evidence: ValidationEvidence, answers: Answers) -> Iterator[PhaseFinding]:
    """The first stage out of line of each run, where the layer as a whole is in line. One layer alone: the stages of a
    stack are whole layers."""
    subject = evidence.subject
    computed_in = subject.rounded_as or subject.dtype
    if computed_in != "float16" or subject.layer is None or subject.layer.is_stack:
        return
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
        message = (
            f"{stage}, from its own operands, is out of what {computed_in} explains: {problem} ({', '.join(names)})"
        )
        yield PhaseFinding(phase="reduction", severity="error", message=message, hint=hint)


def _first_out_of_line(run: RuntimeRun, answers: Answers, format: Format) -> TensorVerdict | None:
    """None where a layer fails as a whole, too: that is told in `numbers`."""
    asked = [(case, run.answers.get((case.id, "stages"))) for case in answers.cases["numbers"]]
    if any(answer is not None and answer.record.outcome != Outcome.PASS for _, answer in asked):
        return None
    for case, answer in asked:
        if answer is None or answer.tensors is None:
            continue
        for verdict in _verdicts(case, answer.tensors, answers, format):
            if not verdict.conforms:
                return verdict
    return None


def _verdicts(case: Case, stages: dict[str, Array], answers: Answers, format: Format) -> Iterator[TensorVerdict]:
    seen = {name: value.astype(np.float64) for name, value in stages.items()}
    right, conditions = continued_with_noise(case, (), seen)
    for name, value in right.items():
        if name in stages:
            kept = answers.expected[case.id].tensors[name]
            golden, condition = (each.reshape(-1)[kept.positions] for each in (value, conditions[name]))
            expected = ExpectedTensor(kept.shape, kept.positions, golden, np.nan_to_num(condition))
            yield judge_tensor(name, stages[name], expected, format, constants())
