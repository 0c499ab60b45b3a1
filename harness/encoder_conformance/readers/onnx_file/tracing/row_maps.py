"""Recognises a linear map within a row by its values: a gain, a permutation, a rotation by position.

The file's own nodes are run on unit vectors, and the matrix that they apply at each position is taken apart. How a file
spells a rotation does not matter.
"""

from collections.abc import Callable

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Gain,
    OtherMap,
    OtherRotation,
    Rotation,
    RowMap,
    UnsupportedPattern,
)
from encoder_conformance.spec.axes import SD, Array, Elementwise

CLOSE = 1e-5
"""Relative: constants in float32."""
_NEAR = 1e-2
"""The error of a cosine in bfloat16, and more than that of one in float16."""
_ENOUGH_TO_GROW = 4
"""Positions that tell what grows evenly with them from rounding."""
_ZERO = 1e-9
USUAL_THETA = 1e4
_LARGE = 1 << 25
"""Numbers in the answers to all unit vectors."""
Form = Gain | Rotation | OtherMap
Function = Callable[[Array], Array]


def row_map(of: Function, shape: tuple[int, ...], S: int) -> tuple[Array, float, Form | None]:
    """The result's index, the factor and the form of a function of features [N, F]; no form where it only rearranges.

    `of` gives the result, of any shape, of values [N, F]. Raises UnsupportedPattern.
    """
    N, F = shape
    vector = np.random.default_rng(2).uniform(1, 2, F)
    plain = of(np.tile(vector, (N, 1)))
    rows = _numbers(of(np.arange(1, N + 1)[:, None] * vector), plain, N)
    if rows is None or of(np.zeros(shape)).any():
        raise UnsupportedPattern("elements of different positions are mixed, or numbers are added to them")
    sizes = [size for size in range(2, F + 1) if F % size == 0]
    for d in sorted(sizes, key=lambda size: (size == F or size not in plain.shape, size)):
        heads = _numbers(of(np.tile(vector * (1 + np.arange(F) // d), (N, 1))), plain, F // d)
        if heads is None or d * plain.size > _LARGE:
            continue
        units = np.stack([of(np.tile(np.eye(d)[each], (N, F // d))) for each in range(d)], -1)
        if _is_linear(of, units, rows, heads, (N, F // d, d)):
            place = _places(rows.reshape(-1) * (F // d) + heads.reshape(-1), d)
            found = _of_a_head(units.reshape(-1, d), place, N, S)
            if found is not None:
                factor, form = taken_apart(found)
                return place.reshape(plain.shape), factor, form
    raise UnsupportedPattern("the features of a row are mixed by something that is no linear map within a head")


def _numbers(observed: Elementwise, plain: Elementwise, most: int) -> Elementwise | None:
    """The whole numbers from 0, fewer than `most`, that `observed` is `plain` times, less 1; None where it is not."""
    with np.errstate(all="ignore"):
        ratio = observed / plain
    whole = np.isfinite(ratio).all() and np.abs(ratio - np.rint(ratio)).max() <= 1e-3
    if not whole or ratio.min() < 0.5 or ratio.max() > most + 0.5:
        return None
    return np.rint(ratio).astype(np.int64) - 1


def _is_linear(of: Function, units: Array, rows: Array, heads: Array, sizes: tuple[int, int, int]) -> bool:
    """Whether the answers to unit vectors [..., d] give that to any values."""
    drawn = np.random.default_rng(4).normal(size=sizes)
    observed, due = of(drawn.reshape(sizes[0], -1)), (units * drawn[rows, heads]).sum(-1)
    return bool(np.abs(observed - due).max() <= CLOSE * np.abs(due).max())


def _places(group: Array, d: int) -> Array:
    """The number of each element [n] of the result among features [N, F]; `group` numbers its row and head.

    A head that several share is there several times, and its elements in one order each time; one that is another's,
    such as a key's in one map with the query's, is not.
    """
    present, counts = np.unique(group, return_counts=True)
    if (counts != counts[0]).any() or counts[0] % d:
        raise UnsupportedPattern("the features of a row are mixed, and some are left out")
    place = np.empty(len(group), np.int64)
    numbers = present[:, None, None] * d + np.arange(d) + np.zeros((counts[0] // d, 1), np.int64)
    place[np.argsort(group, kind="stable")] = numbers.reshape(-1)
    return place


def _of_a_head(units: Array, place: Array, N: int, S: int) -> Array | None:
    """The matrices [S, d, d] of the positions, where they are those of every head and item; of answers [n, d]."""
    d, present = units.shape[-1], len(np.unique(place))
    if present % (N * d):
        raise UnsupportedPattern("the features of a row are mixed at some of the positions alone")
    order = np.argsort(place, kind="stable")
    matrices = units[order].reshape(N // S, S, present // (N * d), d, len(place) // present, d)
    first = matrices[:1, :, :1, :, :1]
    alike = np.abs(matrices - first).max() <= CLOSE * np.abs(first).max()
    found: Array = first[0, :, 0, :, 0]
    return found if alike else None


def taken_apart(matrices: Array) -> tuple[float, Form | None]:
    """The factor and the form of matrices [S, d, d], from each position's features to those of the result."""
    d = matrices.shape[-1]
    used = (np.abs(matrices) > _ZERO * np.abs(matrices).max()).any(0)
    norms = np.sqrt((matrices**2).sum(-1))
    factor = float(norms.mean())
    if used.sum(1).max() == 1 and np.allclose(matrices, matrices[:1], rtol=CLOSE):
        if not np.array_equal(used, np.eye(d, dtype=np.bool_)):
            return 1.0, OtherMap("a permutation of the features")
        gains = np.diagonal(matrices[0])
        return (float(gains[0]), None) if np.allclose(gains, gains[0], rtol=CLOSE) else (1.0, Gain(gains))
    if used.sum(1).max() == 2 and _grow_with_position(norms):
        return 1.0, OtherRotation("a rotation that grows or shrinks with the position, as xPos has it")
    if used.sum(1).max() == 2 and np.allclose(norms, factor, rtol=_NEAR):
        return (1.0 if abs(factor - 1) < 1e-3 else factor), _rotation(matrices / factor, used)
    most = int(used.sum(1).max())
    if most == 2:
        return 1.0, OtherRotation("pairs of features mixed otherwise than by a rotation")
    return 1.0, OtherMap(f"a linear map within a head that is no rotation: a feature is made of {most}")


def _grow_with_position(norms: SD) -> bool:
    """Whether lengths are one more times a number from each position to the next: rounding leaves no such order."""
    places, logs = np.arange(len(norms)), np.log(np.maximum(norms, np.finfo(np.float64).tiny))
    if len(norms) < _ENOUGH_TO_GROW:
        return False
    rates, starts = np.polyfit(places, logs, 1)
    grown = np.abs(rates).max() * len(norms)
    return bool(grown > CLOSE and np.abs(places[:, None] * rates + starts - logs).max() < 0.1 * grown)


def _rotation(matrices: Array, used: Array) -> Form:
    """The rotation of pairs that matrices [S, d, d] are, whose rows are of unit length; `used` [d, d] are their entries
    that are not 0 everywhere."""
    S, d, _ = matrices.shape
    turned = np.flatnonzero(used.sum(1) == 2)
    pairs = sorted({tuple(np.flatnonzero(used[i]).tolist()) for i in turned})
    in_place = all(np.flatnonzero((used == used[a]).all(1)).tolist() == [a, b] for a, b in pairs)
    if not in_place or not used.diagonal().all():
        return OtherRotation("a rotation whose pairs stand in another order than before it")
    one, other = np.array(pairs).T
    angles = np.arctan2(matrices[:, other, one], matrices[:, one, one])  # [S, pairs]
    rates = _around(angles[1] - angles[0])
    grown = angles[0] + np.arange(S)[:, None] * rates
    cos, sin, turns = np.cos(grown), np.sin(grown), ((one, one), (one, other), (other, one), (other, other))
    due, blocks = np.stack([cos, -sin, sin, cos]), np.stack([matrices[:, i, j] for i, j in turns])
    if np.abs(due - blocks).max() > 2 * _NEAR or not np.abs(rates).min():
        return OtherRotation("a rotation whose angles do not grow evenly with the position")
    size = len(turned)
    apart = sorted({b - a for a, b in pairs})
    pairing = "halves" if apart == [size // 2] else "interleaved" if apart == [1] else f"pairs {apart} apart"
    if (np.sign(rates) != np.sign(rates[0])).any():
        return OtherRotation("a rotation that turns some pairs forwards and others backwards")
    exponents, logs = 2 * np.arange(len(pairs)) / size, np.log(np.abs(rates))
    usual = -np.log(USUAL_THETA), logs[0]  # one pair turns alike for any
    slope, start = np.polyfit(exponents, logs, 1, w=np.abs(rates)) if len(pairs) > 1 else usual
    if np.abs(slope * exponents + start - logs).max() > 1e-2:
        return OtherRotation(f"a rotation by position ({pairing}) whose angles are those of no one theta")
    scale = float(np.sign(rates[0]) * np.exp(start))
    first, leads = float(_around(angles[0])[0] / rates[0]), turned[-1] == size - 1
    return Rotation(pairing, size, d, _decimal(float(np.exp(-slope))), scale, first, bool(leads))


def _decimal(theta: float) -> float:
    """The number of few digits that it is near, as it was written where the angles were made in float32."""
    near = (float(f"{theta:.{digits}g}") for digits in range(1, 6))
    return next((each for each in near if abs(each / theta - 1) < 1e-4), theta)


def _around(angle: Elementwise) -> Elementwise:
    """The angle in −π … π."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def map_text(step: RowMap) -> str:
    """A map, in a message."""
    match step.form:
        case Gain():
            return "a gain by feature"
        case OtherMap(text):
            return text
        case Rotation(pairing, size, width, theta, scale, first):
            features = f"all {width} features" if size == width else f"{size} of {width} features"
            parts = [
                pairing,
                features,
                *([] if step.form.leads else ["not the first ones"]),
                *([f"theta {theta:.5g}"] if size > 2 else []),
            ]
            parts += [f"from position {first:.4g}"] if abs(first) > 1e-3 else []
            parts += [f"times {scale:.4g}"] if abs(scale - 1) > 1e-3 else []
            return f"a rotation by position ({', '.join(parts)})"
