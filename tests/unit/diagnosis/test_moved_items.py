"""An output whose items stand in each other's places is seen as that, and nothing else is."""

from collections.abc import Callable

import numpy as np
import pytest

from encoder_conformance.diagnosis.in_sigma import sigma_of
from encoder_conformance.diagnosis.moved_items import moved_items
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.axes import BSD
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load

UNSORTED = load().cases["pre-gelu/items-unsorted"]
ORDER = [1, 3, 0, 2]
"""The items of that case, the longest first: their lengths are 5, 8, 2 and 6."""


def output(case: Case = UNSORTED, *deviations: str) -> BSD:
    """The output in float32, with these deviations."""
    return simulate(case, [catalogue()[name] for name in deviations])["output"].astype(np.float32)


def moved(seen: BSD, case: Case = UNSORTED) -> str | None:
    expected = read_golden(case, read_golden_manifest(), constants())
    return moved_items(case, seen, sigma_of(expected.tensors["output"], FORMATS["float32"]), FORMATS["float32"])


MOVED: dict[str, tuple[Callable[[BSD], BSD], str]] = {
    "the order twice": (
        lambda y: y[ORDER][ORDER],
        "items 3, 2, 1, 0: they are sorted by length, and put back by the order",
    ),
    "never put back": (
        lambda y: y[ORDER],
        "items 1, 3, 0, 2: they are sorted by length, the longest first, and not put",
    ),
    "two exchanged": (lambda y: y[[0, 2, 1, 3]], "items 0, 2, 1, 3"),
}


@pytest.mark.parametrize("name", MOVED)
def test_items_that_stand_elsewhere_are_named(name: str) -> None:
    move, said = MOVED[name]
    seen = moved(move(output()))
    assert seen is not None
    assert seen.endswith(" σ)")
    assert said in seen
    assert ("sorted" in said) == ("sorted" in seen)


def test_an_output_that_is_right_or_wrong_otherwise_is_not_called_that() -> None:
    right, one_item = output(), output()
    one_item[1:] = right[0]
    for other in (right, output(UNSORTED, "mask-ignored")[ORDER], right[ORDER] * 1.01, one_item, right[ORDER] * np.nan):
        assert moved(other) is None
    alike = load().cases["pre-gelu/length-300"]
    assert moved(output(alike), alike) is None, "there is one item"


def test_items_that_are_moved_and_out_of_line_are_not_called_moved() -> None:
    """By a thousandth of an element's size, which is some hundreds of σ, and less than items are apart."""
    assert moved(output()[ORDER] * np.float32(1.0001)) is None
