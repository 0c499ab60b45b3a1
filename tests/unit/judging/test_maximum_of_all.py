"""A gradient that reaches hidden positions conforms where it is what rounding leaves of the maximum of all scores."""

from dataclasses import replace

import numpy as np
import pytest

from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import UnjudgedAnswer, judged
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.platform.paths import IMPLS
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome

CASE = load().cases["post-gelu/large-logits"]
SELDOM = load().cases["post-gelu/alibi-padding"]
"""Where a hidden position has the largest score in few rows."""


def golden_of(case: Case) -> Expected:
    return read_golden(case, read_golden_manifest(), constants())


def gradients(dtype: DtypeName, case: Case = CASE) -> dict[str, Array]:
    """As plain NumPy has them, through the maximum of all scores."""
    arithmetic, inputs = Arithmetic(np.dtype(dtype).type), replace(given(case), largest="all")
    found = evaluate(case, arithmetic, case.cotangent(golden_of(case).kinked_rows), inputs).gradients
    return {name: value.astype(dtype) for name, value in found.items()}


def record(observed: dict[str, Array], dtype: DtypeName, case: Case = CASE) -> Record:
    task = Task(read_implementation(IMPLS / "pytorch"), case, dtype, "gradients", None)
    return judged(UnjudgedAnswer(task, golden_of, observed, 0.0))


def hidden(gradient: Array, case: Case = CASE, *, reached: bool = True) -> list[tuple[int, int]]:
    """(item, position) of those that are hidden and have a gradient, or have none."""
    found = (np.any(gradient != 0, axis=-1) == reached) & ~case.valid()
    return [(int(item), int(position)) for item, position in np.argwhere(found)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_rounding_leaves_of_it_conforms(dtype: DtypeName) -> None:
    observed = gradients(dtype)
    assert hidden(observed["x"])
    found = record(observed, dtype)
    assert found.outcome is Outcome.PASS, found.message
    assert found.max is not None
    assert 0.5 < found.max < 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_than_that_does_not(dtype: DtypeName) -> None:
    observed = gradients(dtype)
    for item, position in hidden(observed["x"]):
        observed["x"][item, position] *= 20
    assert record(observed, dtype).outcome is Outcome.FAIL


def test_a_hidden_position_that_has_no_largest_score_stays_exact() -> None:
    observed = gradients("float64", SELDOM)
    assert hidden(observed["x"], SELDOM)
    assert record(observed, "float64", SELDOM).outcome is Outcome.PASS
    for position in hidden(observed["x"], SELDOM, reached=False):
        observed["x"][position] = 1e-17
    assert record(observed, "float64", SELDOM).outcome is Outcome.FAIL


def test_nothing_else_may_be_wrong_beside_it() -> None:
    observed = gradients("float64")
    observed["attention.key.weight"] *= 1 + 1e-6
    found = record(observed, "float64")
    assert found.outcome is Outcome.FAIL
    assert "attention.key.weight" in [each.tensor for each in found.tensors if not each.conforms]
