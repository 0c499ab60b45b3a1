"""Which norm a function of rows is, by its values: LayerNorm or RMSNorm, its epsilon, its gain and its shift."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from encoder_conformance.impls.onnx_file.tracing.expressions import Array, NotUnderstood, Source

CLOSE = 1e-4
NEAR = 0.2
"""What is this close to a norm on ordinary rows, and no closer, is taken for one done wrong, and said to be."""


@dataclass(frozen=True)
class Found:
    kind: str
    epsilon: float
    gain: Source | None
    shift: Source | None
    evidence: str
    off: float = 0.0


@dataclass(frozen=True)
class Constant:
    """What the function takes beside x: `source` flat, of this `shape` in the file; `name` "" for an attribute."""

    name: str
    source: Source
    said: str
    shape: tuple[int, ...] = ()


def standardised(x: Array, kind: str, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True) if kind == "layer_norm" else x
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


def norm_of(
    of: Callable[[Array, Mapping[str, Array]], Array],
    at: Callable[[Array], Array],
    shape: tuple[int, ...],
    constants: list[Constant],
) -> Found:
    """Raises NotUnderstood. `of` is the function, of the root's values and of others in the place of its constants;
    `at` puts the values of the root in the places where it gives them.

    Every vector is tried as the gain and as the shift with numbers drawn for it, since the file's own may be equal.
    """
    N, F = shape
    draw = np.random.default_rng(1)
    ordinary = draw.normal(size=shape) + 0.5
    rows = ordinary * np.resize([1.0, 1e-2, 1e-3, 1e-5], N)[:, None]
    vectors = [c for c in constants if c.name and c.source.value.size == F and (F > 1 or c.shape)]
    drawn = {c.name: draw.uniform(0.5, 1.5, c.source.value.size) for c in vectors}
    put = {c.name: drawn[c.name].reshape(c.shape) for c in vectors}
    seen, seen_ordinary = of(rows, put), of(ordinary, put)
    pairs: list[tuple[Constant | None, Constant | None]] = [
        *product(vectors, vectors), *((v, None) for v in vectors), *((None, v) for v in vectors), (None, None)
    ]  # fmt: skip
    scalars = [c for c in constants if c.source.value.size == 1 and c.name not in drawn]
    best = Found("", 0, None, None, "", np.inf)
    for (gain, shift), kind, scalar in product(pairs, ("layer_norm", "rms_norm"), scalars):
        epsilon = float(scalar.source.value.reshape(()))
        if not 0 <= epsilon < 1:
            continue
        g, s = drawn[gain.name] if gain else 1.0, drawn[shift.name] if shift else 0.0
        found = Found(kind, epsilon, gain.source if gain else None, shift.source if shift else None, scalar.said)
        if distance(seen, at(standardised(rows, kind, epsilon) * g + s)) <= CLOSE:
            return found
        off = distance(seen_ordinary, at(standardised(ordinary, kind, epsilon) * g + s))
        if off < best.off:
            best = replace(found, off=off)
    if best.off <= NEAR:
        return best
    raise NotUnderstood("a function of each row of features that is neither LayerNorm nor RMSNorm")


def distance(seen: Array, due: Array) -> float:
    """The largest error, in the size of what is due."""
    off = float(np.abs(seen - due).max() / (np.abs(due).max() + 1e-300))
    return off if np.isfinite(off) else np.inf
