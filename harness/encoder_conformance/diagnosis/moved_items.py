"""Sees that an output is right but for the places of its items: each one's is what another's should be."""

from collections.abc import Iterator

import numpy as np

from encoder_conformance.diagnosis.in_sigma import conforms, in_sigma, rms
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.spec.axes import BSD, Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.size import is_large

_SAME = 4096.0
"""Roundoffs of the largest number by which two outputs of one item may differ; those of two items are further apart."""
_LEAST_APART = 0.05
"""The least difference of two items, relative to the largest number, that tells them from each other."""


def moved_items(case: Case, output: BSD, sigma: BSD, dtype: Format) -> str | None:
    """What was done to the items of an output that is right otherwise, and the rms, in σ, that this leaves of it; None
    if they are not moved, or not all that is wrong is that. `output` and `sigma`, of the right one, are [B, S, D]."""
    valid, B, situation = case.specified(), len(output), case.situation
    is_plain = situation.items is None and situation.given.layout == "batch_first" and output.shape == case.x_shape
    if B < 2 or is_large(case.layer) or not is_plain:
        return None
    right = simulate(case, [])["output"]
    size = float(np.abs(right[valid]).max(initial=0.0))
    same = min(_SAME * dtype.roundoff, _LEAST_APART / 4) * size
    found = [_item_like(output[b], right, valid, valid[b], same, _LEAST_APART * size) for b in range(B)]
    if sorted(each for each in found if each is not None) != [*range(B)] or found == [*range(B)]:
        return None
    moved = [int(each) for each in found if each is not None]
    compared = (valid & valid[moved])[:, :, None] & np.isfinite(sigma[moved])
    left = in_sigma(output, right[moved], sigma[moved])[compared]
    if not left.size or not conforms(left):
        return None
    how = " or ".join(dict.fromkeys(how for how, order in _orders(case) if order == moved))
    places = ", ".join(map(str, moved))
    return f"items 0 to {B - 1} have the outputs of items {places}{f': {how}' if how else ''} ({rms(left):.2g} σ)"


def _item_like(row: BSD, right: BSD, valid: Bools, own: Bools, same: float, apart: float) -> int | None:
    """The only item of `right` that one item's output [S, D] is, where both are specified; None if none or several."""
    distances = [_distance(row, each, own & at) for each, at in zip(right, valid, strict=True)]
    nearest = int(np.argmin(distances))
    others = [distance for item, distance in enumerate(distances) if item != nearest]
    return nearest if distances[nearest] <= same and min(others) >= apart else None


def _distance(one: BSD, other: BSD, rows: Bools) -> float:
    """The largest difference of two outputs [S, D] in these rows, [S]; infinity where there is none to compare."""
    difference = np.abs(one[rows].astype(np.float64) - other[rows]).max(initial=-np.inf)
    return float(difference) if np.isfinite(difference) and difference >= 0 else np.inf


def _orders(case: Case) -> Iterator[tuple[str, list[int]]]:
    """Mistakes of sorting, and the item whose output each place then has."""
    lengths = case.valid().sum(axis=1)
    orders = {"longest": np.argsort(-lengths, kind="stable"), "shortest": np.argsort(lengths, kind="stable")}
    for first, order in orders.items():
        yield "they are sorted by length, and put back by the order in place of its inverse", order[order].tolist()
        yield f"they are sorted by length, the {first} first, and not put back", order.tolist()
