"""Where positions lie: by a situation, in an encoder of token ids, and as an adapter is told (S-3, E-16)."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from encoder_conformance import RunRequest
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.encoder import evaluate, forward
from encoder_conformance.oracle.forms import FORMS, steps_of
from encoder_conformance.oracle.forms.embedding import table
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load
from encoder_conformance.spec.positions import Grid
from encoder_conformance.spec.situation import Situation
from encoder_conformance.worker.marshalling import encode_inputs, run_request

CASES = load().cases
TOKENS = CASES["encoder-pre-gelu/tokens"]
OFFSET = {"kind": "offset", "by": 100}
RESTART = {"kind": "restart", "at": (3, 5)}
LEFT = {"kind": "left_padding"}
NO_ROWS = np.zeros((0, 2), dtype=np.int64)


def placed(positions: dict[str, Any] | None, **changes: Any) -> Case:
    """The case of token ids with its positions elsewhere."""
    keys = {**TOKENS.situation.model_dump(), "checks": ("output", "gradients"), **changes, "positions": positions}
    return Case(TOKENS.layer, Situation.model_validate(keys))


def padded_left(lengths: tuple[int, ...]) -> dict[str, Any]:
    return {"padding": {"kind": "left", "lengths": lengths}, "attention": None, "bias": None}


def along(case: Case) -> list[list[float]]:
    coordinates = case.coordinates()
    assert coordinates is not None
    assert (coordinates.dtype, coordinates.shape[2]) == (np.float64, 1)
    found: list[list[float]] = coordinates[:, :, 0].tolist()
    return found


def test_each_kind_counts_as_it_says() -> None:
    size: dict[str, Any] = {"batch": 2, "sequence": 7, "items": None}
    assert placed(None, **size).coordinates() is None
    assert along(placed(OFFSET, **size)) == [[100, 101, 102, 103, 104, 105, 106]]
    assert along(placed(RESTART, **size)) == [[0, 1, 2, 0, 1, 0, 1]]
    assert along(placed(LEFT, **size, mask=padded_left((7, 3)))) == [[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1, 2]]
    assert along(placed(LEFT, **size, mask=padded_left((7, 0))))[1] == [0] * 7
    grid = Grid(kind="grid", rows=2, columns=3).coordinates(np.ones((2, 6), dtype=np.bool_))
    assert grid.tolist() == [[[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]]


@pytest.mark.parametrize(
    ("positions", "changes", "said"),
    [
        (LEFT, {}, "positions are left_padding, but mask.padding is null"),
        ({"kind": "restart", "at": (5, 3)}, {}, "positions.at is [5, 3], not ascending"),
        ({"kind": "restart", "at": (99,)}, {}, "positions.at is [99], not ascending and below sequence"),
        ({"kind": "grid", "rows": 2, "columns": 3}, {}, "which has two axes, and what is added to token ids has one"),
        (OFFSET, {"families": ("small",)}, "which needs families of layers that take token ids"),
        (OFFSET, {"checks": ("invariant",), "invariant": "determinism"}, "the checks alone that have a golden"),
    ],
)
def test_positions_that_do_not_fit_are_refused(positions: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        placed(positions, **changes)
    assert said in str(caught.value)


def test_a_grid_has_a_place_for_each_position() -> None:
    grid = Grid(kind="grid", rows=2, columns=3)
    assert grid.problem(6, padded=False) == ""
    assert grid.problem(7, padded=False) == "positions is a grid of 2 × 3, but sequence is 7"


@pytest.mark.parametrize("arithmetic", [Arithmetic, lambda: Rounded(2.0**-32, 1)], ids=["exact", "rounded"])
def test_positions_from_nought_are_those_that_nobody_gives_bit_for_bit(arithmetic: Callable[[], Arithmetic]) -> None:
    what, counted = given(TOKENS), np.arange(TOKENS.x_shape[1], dtype=np.float64)[None, :, None]
    due = forward(TOKENS.layer, what, arithmetic())
    for stage, value in forward(TOKENS.layer, replace(what, positions=counted), arithmetic()).items():
        assert np.array_equal(value, due[stage]), stage


@pytest.mark.parametrize("positions", [OFFSET, RESTART], ids=["offset", "restart"])
def test_what_is_added_is_that_of_the_position_in_a_longer_sequence(positions: dict[str, Any]) -> None:
    case = placed(positions)
    B, S, D = case.x_shape
    far = table(Arithmetic(), np.zeros((1, 100 + S, D)))
    due = case.parameters()["embedding.weight"][case.ids()] + far[np.array(along(case)[0], dtype=int)]
    assert np.array_equal(evaluate(case, Arithmetic(), None).stages["embedded"], due)
    assert due.shape == (B, S, D)


def test_each_item_counts_by_itself_and_so_does_one_of_them() -> None:
    S = TOKENS.x_shape[1]
    case = placed(LEFT, batch=2, items=None, mask=padded_left((S, S - 2)))
    both = evaluate(case, Arithmetic(), case.cotangent(NO_ROWS))
    [alone] = [replace(case, situation=case.situation.model_copy(update={"items": (1,)}))]
    one = evaluate(alone, Arithmetic(), case.cotangent(NO_ROWS))
    assert np.array_equal(one.stages["embedded"][1], both.stages["embedded"][1])
    assert not one.stages["embedded"][0].any()
    assert both.gradients.keys() == case.parameters().keys()


def test_who_counts_from_nought_all_the_same_is_wrong_where_positions_are_given_alone() -> None:
    [need] = FORMS["positions"].needs["ignored"]
    assert need.met(placed(OFFSET), steps_of(TOKENS.layer)["positions"])
    assert not need.met(TOKENS, steps_of(TOKENS.layer)["positions"])
    case = placed(OFFSET)
    wrong = forward(case.layer, replace(given(case), variants={"positions": "ignored"}), Arithmetic())
    right, from_nought = (evaluate(each, Arithmetic(), None).stages for each in (case, placed(None)))
    assert np.array_equal(wrong["embedded"], from_nought["embedded"])
    assert not np.allclose(wrong["embedded"], right["embedded"])


def test_only_who_can_be_told_is_asked_and_is_told() -> None:
    case = placed(OFFSET)
    told, untold = (find_implementation(name)[1] for name in ("pytorch", "onnx_direct"))
    assert told.opt_out(case, "float32", "output") is None
    reason = untold.opt_out(case, "float32", "output")
    assert reason is not None
    assert reason.text == "positions is not among its capabilities"
    request, tensors = run_request(Task(told, case, "float32", "output", None), NO_ROWS)
    run = RunRequest.of(tensors, json.loads(request.model_dump_json()))
    assert run.positions is not None
    assert np.array_equal(run.positions, case.coordinates())
    assert "positions" not in encode_inputs(Task(told, TOKENS, "float32", "output", None))
    assert RunRequest.of({}, json.loads(request.model_dump_json())).positions is None
