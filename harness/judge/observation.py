"""What an implementation was seen to give in a case, kept small: its values where the golden keeps values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.judge.answers import Answers, Sampled, values_at
from encoder_conformance.judge.expected import Expected
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.stages import stages

Array = npt.NDArray[Any]


SMALL = 64
"""Up to this d_model stages are kept whole: a few hundred kilobytes a case."""


@dataclass(frozen=True)
class Observation:
    """`values` by stage, in the order of computation, at the positions that the golden keeps; None where shape or
    dtype left nothing to compare. `whole` has the stages of a small layer, padding and all, float64, each in the shape
    that it was given in: what later steps were computed from. `in_format`: every answer came in the dtype asked for.
    """

    case: Case
    expected: Expected
    dtype: Format
    values: dict[str, Array | None]
    whole: dict[str, Array]
    failed: bool
    in_format: bool


def observation_of(case: Case, expected: Expected, dtype: Format, answers: Answers, *, failed: bool) -> Observation:
    """`answers` holds stages, and "output" from the fused path if the implementation shows no stages."""
    values: dict[str, Array | None] = {}
    whole: dict[str, Array] = {}
    for name in stages(case.layer):
        if name in answers:
            answer, tensor = answers[name], expected.tensors[name]
            fits = answer.dtype == dtype.numpy
            if fits and case.layer.d_model <= SMALL and not isinstance(answer, Sampled):
                whole[name] = answer.astype(np.float64)
            comparable = fits and answer.shape == tensor.shape
            values[name] = values_at(answer, tensor.positions).astype(np.float64) if comparable else None
    in_format = all(answer.dtype == dtype.numpy for answer in answers.values())
    return Observation(case, expected, dtype, values, whole, failed, in_format)
