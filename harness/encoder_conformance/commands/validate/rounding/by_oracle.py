"""How far a file of integers is off, by the oracle: where no source can be called, and its layer is known."""

import math
from collections.abc import Iterator

import numpy as np

from encoder_conformance.blackbox.asked_shapes import Kind
from encoder_conformance.commands.validate.evidence import Answers, ExaminedFile
from encoder_conformance.commands.validate.rounding.results import RoundedCase, Rounding
from encoder_conformance.judging.relative import relative_error
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.protocol.quantised import STANDS_FOR
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.situation import Situation

_OUT_OF_RANGE = ("low-variance", "large-mean")


def by_oracle(subject: ExaminedFile, answers: Answers | None) -> Rounding | None:
    """Against what the file was made from, where its parameters are stated, else against the numbers that its integers
    stand for. None for a file without integers."""
    if answers is None or not subject.integers:
        return None
    made_from = bool(subject.request.parameters)
    name = "what it was made from" if made_from else STANDS_FOR
    return Rounding(reference=name, made_from=made_from, cases=tuple(_cases(subject, answers)))


def _cases(subject: ExaminedFile, answers: Answers) -> Iterator[RoundedCase]:
    for case in (*answers.cases["numbers"], *answers.cases["masks"]):
        expected = answers.expected[case.id].tensors["output"]
        golden = expected.golden.astype(np.float64)
        right = _exact(case, subject).reshape(-1)[expected.positions] if subject.request.parameters else golden
        found = {
            run.name: answer.tensors["output"].reshape(-1)[expected.positions]
            for run in answers.of_the_file
            if (answer := run.answers.get((case.id, "output"))) is not None
            and answer.tensors is not None
            and answer.tensors["output"].shape == expected.shape
        }
        if not found:
            continue
        yield RoundedCase(
            name=case.situation.situation,
            kind=_kind(case.situation),
            errors={run: _number(relative_error(value, right)) for run, value in found.items()},
            weights=_number(relative_error(golden, right)) if subject.request.parameters else None,
            activations=_number(relative_error(next(iter(found.values())), golden))
            if subject.request.parameters
            else None,
        )


def _kind(situation: Situation) -> Kind:
    if situation.situation in _OUT_OF_RANGE or "padded-item" in situation.situation:
        return "out of range"
    return "padded" if situation.mask.padding else "ordinary"


def _exact(case: Case, subject: ExaminedFile) -> Array:
    """The output of a case, [B, S, D], with the parameters that the file was made from."""
    assert subject.request.parameters is not None
    original = Case(case.layer, case.situation, held=CaseParameters.of(subject.request.parameters))
    return evaluate(original, Arithmetic(), None).stages["output"].astype(np.float64)


def _number(error: float) -> float | None:
    return None if math.isnan(error) else error
