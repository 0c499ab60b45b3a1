"""Inputs for a file whose dimensions are named in an unusual way."""

import pytest

from encoder_conformance.blackbox.inputs import WholeInputs
from encoder_conformance.protocol.description import WholeFile, WholeInput

MASK = WholeInput(name="mask", dtype="bool", shape=("batch", "sequence"))


def sizes(*x: str | int, mask: tuple[str | int, ...] = ("n", "n")) -> set[tuple[int, ...]]:
    inputs = (WholeInput(name="x", dtype="float32", shape=x), WholeInput(name="mask", dtype="bool", shape=mask))
    cases = WholeInputs(WholeFile(inputs=inputs, outputs=(), held="float32")).cases()
    assert {case.inputs["mask"].shape for case in cases} == {case.inputs["x"].shape[:2] for case in cases}
    return {case.inputs["x"].shape for case in cases}


def test_items_and_positions_of_one_name_are_as_many() -> None:
    assert sizes("n", "n", 16) == {(n, n, 16) for n in (1, 7, 20, 33)}


@pytest.mark.parametrize("x", [("b", "s", 16), ("n", "s", 16)])
def test_those_of_two_names_are_not(x: tuple[str | int, ...]) -> None:
    assert (3, 1, 16) in sizes(*x, mask=x[:2])


def test_inputs_that_share_no_name_have_the_same_items_and_positions() -> None:
    """tf2onnx numbers the free dimensions of each input: the mask of three items had as many as one has positions."""
    assert (3, 1, 16) in sizes("unk__1", "unk__2", 16, mask=("unk__3", "unk__4"))


def test_what_is_fixed_stays() -> None:
    assert {shape[:2] for shape in sizes(2, 5, 16, mask=(2, 5))} == {(2, 5)}


def test_features_in_the_middle_fix_no_length() -> None:
    inputs = WholeInput(name="x", dtype="float32", shape=("batch", 16, "sequence")), MASK
    cases = WholeInputs(WholeFile(inputs=inputs, outputs=(), held="float32")).cases()
    assert {case.inputs["x"].shape[2] for case in cases} == {1, 7, 20, 33}
    assert {case.inputs["mask"].shape[1] for case in cases} == {1, 7, 20, 33}


@pytest.mark.parametrize(("rows", "every"), [(300, True), (30522, False)])
def test_ids_are_others_in_each_case_until_all_were_asked(rows: int, every: bool) -> None:
    """A row of a table that no case gives may hold anything, which is said."""
    ids = WholeInput(name="input_ids", dtype="int64", shape=("batch", "sequence"), rows=rows)
    drawn = WholeInputs(WholeFile(inputs=(ids, MASK), outputs=(), held="float32"))
    cases = [*drawn.cases(), *drawn.long_cases()[:1]]
    asked = {int(each) for case in cases for each in case.inputs["input_ids"].ravel()}
    assert {0, 1, rows - 2, rows - 1} <= asked
    left = list(drawn.rows_asked(cases))
    assert (left == []) == every == (asked == {*range(rows)})
    if not every:
        [(name, count, of)] = left
        assert (name, of) == ("input_ids", rows)
        assert 650 < count < len(asked), "what is hidden is not asked"
