"""The activations of one forward pass, part by part, in bytes: exact integers, from the sizes alone."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

from harness.errors import InputError
from harness.spec.layer import Layer

MIB = 2**20
PARTS: dict[str, str] = {
    "input": "B·S·D",
    "qkv": "3·B·S·D",
    "attn_scores": "B·H·S²",
    "attn_out": "B·S·D",
    "ffn_hidden": "B·S·F",
}
"""Part → how many numbers it holds. Every part once, as if nothing were freed and nothing stored twice."""

_UNITS = {"B": 1} | {
    f"{prefix}{kind}": base ** (power + 1)
    for power, prefix in enumerate("KMGT")
    for kind, base in (("iB", 1024), ("B", 1000))
}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def parts(layer: Layer, batch: int, sequence: int, itemsize: int) -> dict[str, int]:
    """Part → bytes, for numbers of `itemsize` bytes."""
    B, S, D = batch, sequence, layer.d_model
    held = {
        "input": B * S * D,
        "qkv": 3 * B * S * D,
        "attn_scores": B * layer.attention.num_heads * S * S,
        "attn_out": B * S * D,
        "ffn_hidden": B * S * layer.feed_forward.d_ff,
    }
    return {part: numbers * itemsize for part, numbers in held.items()}


def total(layer: Layer, batch: int, sequence: int, itemsize: int, layers: int = 1) -> int:
    """Bytes of every part of `layers` layers."""
    return layers * sum(parts(layer, batch, sequence, itemsize).values())


def longest_sequence(layer: Layer, batch: int, itemsize: int, layers: int, limit: int) -> int:
    """The largest S whose `total` is at most `limit` bytes; 0 if there is none.

    In numbers per layer that is a·S² + c·S ≤ q with a = B·H and c = B·(5·D + F), so S is the integer part of
    (√(c² + 4·a·q) − c) / 2a; the integer root loses nothing, since the integer part of a quotient by an integer is
    that of its dividend's integer part.
    """
    a = batch * layer.attention.num_heads
    c = batch * (5 * layer.d_model + layer.feed_forward.d_ff)
    q = limit // (layers * itemsize)
    return (isqrt(c * c + 4 * a * q) - c) // (2 * a)


def parse_amount(text: str, where: str) -> int:
    """`8GiB`, `512 MiB` or `1.5GB` as whole bytes; KiB, MiB, GiB, TiB count by 1024, KB, MB, GB, TB by 1000."""
    found = _AMOUNT.fullmatch(text)
    unit = {name.lower(): size for name, size in _UNITS.items()}.get(found[2].lower()) if found else None
    if found is None or unit is None or Fraction(found[1]) == 0:
        hint = f"a number above 0 and a unit, such as 8GiB; units: {', '.join(_UNITS)}"
        raise InputError(f"{text!r} is no amount of memory", where=where, hint=hint)
    return int(Fraction(found[1]) * unit)


def mib(size: int) -> str:
    """In MiB with two decimals; a half goes to the even digit, so 3.125 is 3.12 and 9.375 is 9.38."""
    hundredths = round(Fraction(100 * size, MIB))
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def added_as_shown(sizes: Sequence[int]) -> str:
    """The sum of what `mib` shows of each, so that a column of rounded figures adds up."""
    hundredths = sum(int(mib(size).replace(".", "")) for size in sizes)
    return f"{hundredths // 100}.{hundredths % 100:02d}"
