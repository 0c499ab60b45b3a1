"""Which norm a function of rows is, by its values: LayerNorm or RMSNorm, its epsilon, its gain and its shift."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from impls.onnx_file.values import Array, NotUnderstood, Source

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
    """What the function takes beside x: `source` flat."""

    source: Source
    said: str


def standardised(x: Array, kind: str, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True) if kind == "layer_norm" else x
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


def norm_of(
    of: Callable[[Array], Array], at: Callable[[Array], Array], shape: tuple[int, ...], constants: list[Constant]
) -> Found:
    """Raises NotUnderstood. `at` puts the values of the root in the places where `of` gives them."""
    N, F = shape
    ordinary = np.random.default_rng(1).normal(size=shape) + 0.5
    scales = np.resize([1.0, 1e-2, 1e-3, 1e-5], N)[:, None]
    rows = ordinary * scales
    seen, seen_ordinary = of(rows), of(ordinary)
    vectors = [c for c in constants if c.source.value.size == F and F > 1]
    scalars = [c for c in constants if c.source.value.size == 1]
    if F == 1:
        vectors = scalars
    best = Found("", 0, None, None, "", np.inf)
    choices: list[tuple[Constant | None, Constant | None]] = [
        (gain, shift)
        for gain, shift in [
            *permutations(vectors, 2),
            *((v, None) for v in vectors),
            *((None, v) for v in vectors),
            (None, None),
        ]
    ]
    choices.sort(key=lambda pair: -sum(c is not None for c in pair))
    for (gain, shift), kind in product(choices, ("layer_norm", "rms_norm")):
        g = gain.source.value.astype(np.float64) if gain else 1.0
        s = shift.source.value.astype(np.float64) if shift else 0.0
        for scalar in scalars:
            epsilon = float(scalar.source.value.reshape(()))
            if not 0 <= epsilon < 1:
                continue
            sources = gain.source if gain else None, shift.source if shift else None
            evidence = scalar.said
            if _off(seen, at(standardised(rows, kind, epsilon) * g + s), CLOSE):
                return Found(kind, epsilon, *sources, evidence)
            off = _distance(seen_ordinary, at(standardised(ordinary, kind, epsilon) * g + s))
            if off < best.off:
                best = Found(kind, epsilon, *sources, evidence, off)
    if best.off <= NEAR:
        return best
    raise NotUnderstood("a function of each row of features that is neither LayerNorm nor RMSNorm")


def _off(seen: Array, due: Array, limit: float) -> bool:
    return _distance(seen, due) <= limit


def _distance(seen: Array, due: Array) -> float:
    """The largest error, in the size of what is due."""
    size = np.abs(due).max() + 1e-300
    off = float(np.abs(seen - due).max() / size)
    return off if np.isfinite(off) else np.inf
