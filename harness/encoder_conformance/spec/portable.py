"""Portable tensors: small integers times a power of two, from a counter-based generator (rules P-1 to P-7).

Every value is exact in bfloat16, float16, float32 and float64. Twenty lines of any language reproduce it.
"""

from collections.abc import Iterator
from functools import cache, lru_cache
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt

Pattern = Literal["symmetric", "gain", "offset", "raised", "balanced"]
RAISED = 1 << 17
"""The number added by the pattern `raised`: the sums have 18 bits, which a float32 represents."""
Floats = npt.NDArray[np.float64]
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def seed(name: str) -> int:
    """FNV-1a, 64 bits, of the name's UTF-8 bytes (rule P-1; Fowler, Noll, Vo, as in RFC 9923)."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def drawn_for(name: str, seed: int) -> str:
    """The name from which tensor `name` is drawn for input seed `seed`; for seed 0 the plain name (rule P-6)."""
    return f"{name} seed {seed}" if seed else name


def splitmix64(start: int, count: int, first: int = 0) -> npt.NDArray[np.uint64]:
    """Outputs `first` … first+count−1 of SplitMix64 started at `start` (rule P-2; Steele, Lea, Flood, OOPSLA 2014)."""
    drawn = np.empty(count, np.uint64)
    for at, part in _parts(start, count, first):
        drawn[at : at + part.size] = part
    return drawn


def uniform(start: int, count: int, radius: float) -> npt.NDArray[np.float64]:
    """The first `count` outputs of SplitMix64 as numbers in −radius … radius, evenly spread."""
    drawn, low = np.empty(count, np.float64), np.empty(min(count, PART), np.float64)
    for at, part in _parts(start, count):
        numbers, beside = drawn[at : at + part.size], low[: part.size]
        # By halves, which a processor converts as signed integers, twice as fast; their sum rounds once, to the same.
        numbers[...] = (part >> np.uint64(32)).view(np.int64)
        beside[...] = (part & np.uint64(2**32 - 1)).view(np.int64)
        numbers *= 2.0**-31
        beside *= 2.0**-63
        numbers += beside
        numbers -= 1.0
        numbers *= radius
    return drawn


def _parts(start: int, count: int, first: int = 0) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """The outputs in parts that stay in the cache, and the place of each: this loop dominates a large layer, and the
    noise of a large case. A part is overwritten by the next."""
    drawn, beside = np.empty((2, min(count, PART)), np.uint64)
    for at in range(0, count, PART):
        z = drawn[: count - at]
        shifted = beside[: z.size]
        np.add(_steps()[: z.size], np.uint64((start + (first + at) * int(_GOLDEN_GAMMA)) % 2**64), out=z)
        z ^= np.right_shift(z, np.uint64(30), out=shifted)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= np.right_shift(z, np.uint64(27), out=shifted)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= np.right_shift(z, np.uint64(31), out=shifted)
        yield at, z


@cache
def _steps() -> npt.NDArray[np.uint64]:
    """1 … PART times the generator's step, modulo 2**64."""
    return np.arange(1, PART + 1, dtype=np.uint64) * _GOLDEN_GAMMA


PART = 1 << 14
"""Elements per part: 128 kB, which fits a processor's cache, and which an allocator keeps for the next part. Arrays of
256 kB and more it returns to the system (memory.py), and each new one costs several times what is drawn in it."""


def integers(name: str, count: int, first: int = 0) -> npt.NDArray[np.int64]:
    """`count` integers in −255 … 255, from the top 32 bits of each output, from output `first` on (rule P-3)."""
    drawn = splitmix64(seed(name), count, first)
    drawn >>= np.uint64(32)
    drawn *= np.uint64(511)
    drawn >>= np.uint64(32)
    signed = drawn.view(np.int64)
    signed -= 255
    return signed


def ids(name: str, count: int, vocabulary: int) -> npt.NDArray[np.int64]:
    """`count` token ids in 0 … vocabulary−1, from the top 32 bits of each output (rule P-7)."""
    top = splitmix64(seed(name), count) >> np.uint64(32)
    return ((top * np.uint64(vocabulary)) >> np.uint64(32)).astype(np.int64)


def tensor(name: str, shape: tuple[int, ...], pattern: Pattern, exponent: int) -> Floats:
    """The portable tensor `name`, filled in row-major order (rule P-4), float64, not to be written to.

    `symmetric`: n; `gain`: 128 + floor(n / 4), so 64 … 191; `offset`: 255 where 8 divides n, else 254; `raised`:
    2**17 + n; `balanced`: n in the first half of the last axis, and their negatives in the second; all times
    2**exponent.
    """
    # An oracle evaluates one case some eighty times with the same parameters. Large ones are not cached.
    draw = _cached_tensor if prod(shape) <= _CACHED_UP_TO else _tensor
    return draw(name, shape, pattern, exponent)


_CACHED_UP_TO = 1 << 14
"""Elements."""


def parts(name: str, shape: tuple[int, ...], pattern: Pattern, exponent: int) -> Iterator[Floats]:
    """Yield the elements of `tensor` in flat parts; the whole is never in memory. Raises ValueError for `balanced`."""
    size = prod(shape)
    for first in range(0, size, PART):
        yield _part(integers(name, min(PART, size - first), first), pattern, exponent)


def _part(n: npt.NDArray[np.int64], pattern: Pattern, exponent: int) -> Floats:
    """The values [N] that a pattern makes of the integers `n` [N]."""
    match pattern:
        case "symmetric":
            values = n
        case "gain":
            values = 128 + n // 4
        case "offset":
            values = 254 + (n % 8 == 0)
        case "raised":
            values = RAISED + n
        case "balanced":
            raise ValueError("a balanced tensor is not drawn in parts")
    floats = values.astype(np.float64)
    floats *= 2.0**exponent  # exact, and a tenth of the time that np.ldexp takes
    return floats


def _tensor(name: str, shape: tuple[int, ...], pattern: Pattern, exponent: int) -> Floats:
    base = "symmetric" if pattern == "balanced" else pattern
    if prod(shape) <= PART:
        drawn = _part(integers(name, prod(shape)), base, exponent).reshape(shape)
    else:
        drawn, at = np.empty(shape), 0
        for part in parts(name, shape, base, exponent):
            drawn.reshape(-1)[at : at + part.size] = part
            at += part.size
    if pattern == "balanced":
        if shape[-1] % 2:
            raise ValueError(f"a balanced tensor has two halves, and its last axis is {shape[-1]} long")
        first, second = np.split(drawn, 2, axis=-1)
        np.subtract(0.0, first, out=second)  # and not −first, which makes −0 of 0
    drawn.flags.writeable = False
    return drawn


_cached_tensor = lru_cache(maxsize=32)(_tensor)


def weight_exponent(fan_in: int) -> int:
    """−7 − m for the smallest m with 4**m ≥ fan_in: weights of about 1/sqrt(fan_in) (rule P-5)."""
    m = 0
    while 4**m < fan_in:
        m += 1
    return -7 - m


def positions(name: str, available: int, wanted: int) -> npt.NDArray[np.int64]:
    """`wanted` distinct indices below `available`, ascending: the first distinct ones drawn (rule G-3).

    Each output z gives floor(top32(z) * available / 2**32).
    """
    if wanted >= available or not wanted:
        return np.arange(min(wanted, available), dtype=np.int64)
    count = 2 * wanted
    while True:
        top = splitmix64(seed(name), count) >> np.uint64(32)
        drawn = ((top * np.uint64(available)) >> np.uint64(32)).astype(np.int64)
        order = drawn.argsort(kind="stable")
        ascending = drawn[order]
        is_first = np.concatenate([[True], ascending[1:] != ascending[:-1]])
        drawn_at = order[is_first]  # when each distinct one was drawn first
        if drawn_at.size >= wanted:
            last = np.partition(drawn_at, wanted - 1)[wanted - 1]
            return np.asarray(ascending[is_first][drawn_at <= last])
        count *= 2
