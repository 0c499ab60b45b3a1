"""Outputs of two black boxes: what is no number is no agreement."""

import numpy as np
import pytest

from encoder_conformance.blackbox.comparing import judged, kind_of_problem, paired

ONES, NOTHING = np.ones((2, 3)), np.full((2, 3), np.nan)
PADDED = np.stack([np.ones(3), np.full(3, np.nan)])


@pytest.mark.parametrize(
    ("found", "right", "rms", "problem", "more"),
    [
        (ONES, ONES, 0.0, "", False),
        (ONES + 1e-3, ONES, pytest.approx(10.0), "", False),
        (PADDED, ONES, None, "NaN in 3 of 6 places where the source has a number", False),
        (ONES, PADDED, 0.0, "", True),
        (ONES, NOTHING, None, "nothing to compare: the source has no finite number", False),
        (NOTHING, NOTHING, None, "nothing to compare: the source has no finite number", False),
        (ONES[:0], ONES[:0], None, "nothing to compare: it has no items", False),
        (ONES[:1], ONES, None, "its shape is [1, 3], and the source's [2, 3]", False),
    ],
)
def test_each_is_judged(found: object, right: object, rms: object, problem: str, more: bool) -> None:
    assert judged(found, right, 1e-4) == (rms, problem, more)


@pytest.mark.parametrize(
    ("found", "right", "kind"),
    [
        (ONES[:1], ONES, "output-shape-differs"),
        (PADDED, ONES, "no-numbers"),
        (NOTHING, NOTHING, "not-compared"),
        (ONES, NOTHING, "not-compared"),
        (ONES[:0], ONES[:0], "not-compared"),
    ],
)
def test_a_program_is_told_why_there_is_no_number(found: np.ndarray, right: np.ndarray, kind: str) -> None:
    assert kind_of_problem(found, right) == kind
    assert judged(found, right, 1e-4)[0] is None


@pytest.mark.parametrize(
    ("file", "source", "pairs", "unpaired"),
    [
        ({"y": ONES, "z": ONES[:1]}, {"0": ONES, "1": ONES[:1]}, {"y": "0", "z": "1"}, []),
        ({"z": ONES[:1], "y": ONES}, {"0": ONES, "1": ONES[:1]}, {"z": "1", "y": "0"}, []),
        ({"y": ONES, "z": ONES[:, :1]}, {"0": ONES, "1": ONES[:1]}, {"y": "0", "z": "1"}, []),
        ({"y": ONES, "z": ONES[:1]}, {"0": ONES}, {"y": "0"}, ["z"]),
        ({"y": ONES}, {"0": ONES[:1], "1": ONES}, {"y": "1"}, []),
        ({"y": ONES[:1]}, {"y": ONES, "z": ONES[:1]}, {"y": "y"}, []),
    ],
)
def test_each_output_has_its_own_in_the_source(
    file: dict[str, np.ndarray], source: dict[str, np.ndarray], pairs: dict[str, str], unpaired: list[str]
) -> None:
    """One of another shape, with one left on the other side, was compared with nothing."""
    assert paired(file, source) == (pairs, unpaired)
