"""Forms of a test of which a release tries all, and every day a sample."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def thinned(*axes: Sequence[Any]) -> list[Any]:
    """Every combination of the axes' values, as parameters of a test. Those whose places sum to a multiple of three are
    tried every day, the others before a release. With an axis of three values each pair of the others' meets then."""
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(axes, places, strict=True)),
            marks=() if sum(places) % 3 == 0 else pytest.mark.release,
        )
        for places in product(*(range(len(axis)) for axis in axes))
    ]


def sample(items: Iterable[pytest.Item]) -> None:
    """Marks seven of eight forms of each test `release`, so that an eighth is tried every day. Where a test says itself
    which forms are a release's, and in a suite, all stay as they are."""
    forms: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.parent.name != "suite":
            forms.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for likes in forms.values():
        if not any(item.get_closest_marker("release") for item in likes):
            for item in (item for place, item in enumerate(likes) if place % 8):
                item.add_marker("release")


def of_a_release(*values: Any) -> Any:
    """One set of parameters that is tried before a release alone."""
    return pytest.param(*values, marks=pytest.mark.release)


def daily(chosen: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test: those `chosen` are tried every day, the others before a release."""
    kept = list(chosen)
    each = ((value if isinstance(value, tuple) else (value,), value in kept) for value in values)
    return [pytest.param(*value, marks=() if is_daily else pytest.mark.release) for value, is_daily in each]
