"""Positions that see padding alone: whether they have numbers is compared, and the numbers are not."""

import numpy as np

from encoder_conformance.blackbox.comparing import judged, undefined_apart

RIGHT = np.arange(24.0).reshape(3, 2, 4)
LAST = np.array([[False, False], [False, False], [True, True]])
LEFT = np.array([[False, False], [True, False], [False, False]])


def test_other_numbers_of_an_item_of_padding_alone_are_no_error_and_are_told() -> None:
    found = RIGHT.copy()
    found[2] += 1.0
    assert judged(found, RIGHT, 1e-3, LAST) == (0.0, "", False)
    assert undefined_apart(found, RIGHT, 1e-3, LAST) > 100
    rms, _, _ = judged(found, RIGHT, 1e-3)
    assert rms is not None
    assert rms > 100


def test_of_an_item_that_begins_with_padding_its_other_positions_are_compared() -> None:
    found = RIGHT.copy()
    found[1, 0] += 1.0
    assert judged(found, RIGHT, 1e-3, LEFT) == (0.0, "", False)
    assert undefined_apart(found, RIGHT, 1e-3, LEFT) > 100
    found[1, 1, 0] += 1.0
    rms, _, _ = judged(found, RIGHT, 1e-3, LEFT)
    assert rms is not None
    assert rms > 100


def test_what_is_pooled_of_such_an_item_is_compared() -> None:
    pooled = RIGHT[:, 1]
    rms, _, _ = judged(pooled + 1.0, pooled, 1e-3, LEFT)
    assert rms is not None
    assert rms > 100


def test_another_item_of_that_batch_is_compared() -> None:
    found = RIGHT.copy()
    found[0] += 1.0
    rms, _, _ = judged(found, RIGHT, 1e-3, LAST)
    assert rms is not None
    assert rms > 100
    assert undefined_apart(found, RIGHT, 1e-3, LAST) == 0.0


def test_no_number_in_it_is_an_error() -> None:
    found = RIGHT.copy()
    found[2, 0, 0] = np.nan
    _, problem, _ = judged(found, RIGHT, 1e-3, LAST)
    assert "NaN in 1 of 24 places" in problem


def test_an_output_without_items_on_its_first_axis_is_compared_whole() -> None:
    turned = np.ascontiguousarray(RIGHT.transpose(1, 0, 2))
    rms, _, _ = judged(turned + 1.0, turned, 1e-3, LAST)
    assert rms is not None
    assert rms > 100
