"""The observation of a case: the implementation's values at the positions that the golden keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from encoder_conformance.oracle.expected import Expected, ExpectedTensor
from encoder_conformance.protocol.answers import Answers, Observed, Sampled, values_at
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.size import is_large
from encoder_conformance.spec.stages import stages


@dataclass(frozen=True)
class ObservedCase:
    """A case that was asked. `in_format`: every answer has the requested dtype."""

    case: Case
    dtype: Format
    failed: bool
    in_format: bool


@dataclass(frozen=True)
class Observation(ObservedCase):
    """The stages of one case as an implementation computed them.

    `values`: stage → float64 values at the golden's positions, in the order of computation; None if a wrong shape or
    dtype prevents the comparison. `whole`: the stages of a small layer with their padding, float64, in the shape of the
    answer; the inputs of later steps. `unlike`: stage → the shape of an answer that has another one, and None where
    only its dtype is another.
    """

    expected: Expected
    values: dict[str, Array | None]
    whole: dict[str, Array]
    unlike: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)


def as_observed(case: Case, expected: Expected, answers: Answers) -> Answers:
    """The part of the answers that `observation_of` takes: the compared values alone, for a large layer."""
    if not is_large(case.layer):
        return dict(answers)
    return {name: _sample(answer, expected.tensors.get(name)) for name, answer in answers.items()}


def _sample(answer: Observed, expected: ExpectedTensor | None) -> Observed:
    """The compared values of a tensor; none where it cannot be compared."""
    if isinstance(answer, Sampled):
        return answer
    if expected is None or answer.shape != expected.shape:
        return Sampled(answer.dtype, answer.shape, _NOWHERE, np.empty(0, answer.dtype))
    return Sampled(answer.dtype, answer.shape, expected.positions, values_at(answer, expected.positions))


_NOWHERE = np.empty(0, np.int64)


def observation_of(case: Case, expected: Expected, dtype: Format, answers: Answers, *, failed: bool) -> Observation:
    """The observation in `answers`: stages, or only the fused path's "output" if the implementation has no stages."""
    values: dict[str, Array | None] = {}
    whole: dict[str, Array] = {}
    unlike: dict[str, tuple[int, ...] | None] = {}
    for name in stages(case.layer):
        if name in answers:
            answer, tensor = answers[name], expected.tensors[name]
            fits = answer.dtype == dtype.numpy
            if fits and not is_large(case.layer) and not isinstance(answer, Sampled):
                whole[name] = answer.astype(np.float64)
            comparable = fits and answer.shape == tensor.shape
            values[name] = values_at(answer, tensor.positions).astype(np.float64) if comparable else None
            if not comparable:
                unlike[name] = answer.shape if answer.shape != tensor.shape else None
    return Observation(case, dtype, failed, in_format(answers, dtype), expected, values, whole, unlike)


def in_format(answers: Answers, dtype: Format) -> bool:
    """Whether every answer has the requested dtype."""
    return all(answer.dtype == dtype.numpy for answer in answers.values())
