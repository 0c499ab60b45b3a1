"""The activations of one forward pass, part by part, in bytes: exact integers, from the sizes alone."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

from encoder_conformance.errors import InputError
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameter_count

MIB = 2**20
PARTS: dict[str, str] = {
    "input": "B·S·D",
    "qkv": "3·B·S·D",
    "attn_scores": "B·H·S²",
    "attn_out": "B·S·D",
    "ffn_hidden": "B·S·F",
}
"""Part → how many numbers it holds. Every part once, as if nothing were freed and nothing stored twice."""

PUBLISHED_PARTS = tuple(part for part in PARTS if part != "attn_out")
"""A published estimate of one forward pass counts these four, another all five (docs/systems.md, A and D)."""
STATES: dict[str, dict[str, int]] = {
    "weights": {"weights": 1},
    "sgd": {"weights": 1, "gradients": 1},
    "momentum": {"weights": 1, "gradients": 1, "momentum": 1},
    "adam": {"weights": 1, "gradients": 1, "two moments": 2},
}
"""What is kept of every parameter, by what it is kept for → how many numbers each takes, in the layer's dtype.

Momentum is one velocity (Polyak, 1964); Adam's moments are two (Kingma and Ba, 2015, arXiv 1412.6980).
"""

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


def states(layer: Layer, kept: str, itemsize: int, layers: int) -> dict[str, int]:
    """State → bytes, of all parameters of `layers` layers, and of the stack's embedding and final norm if it has them.

    `kept` is a key of `STATES`.
    """
    stack = layer.stack.model_copy(update={"layers": layers})
    count = parameter_count(layer.model_copy(update={"stack": stack}))
    return {state: numbers * count * itemsize for state, numbers in STATES[kept].items()}


def longest_sequence(layer: Layer, batch: int, itemsize: int, layers: int, limit: int) -> int:
    """The largest S whose `total` is at most `limit` bytes; 0 if there is none, and where `limit` is below 0.

    In numbers per layer that is a·S² + c·S ≤ q with a = B·H and c = B·(5·D + F), so S is the integer part of
    (√(c² + 4·a·q) − c) / 2a; the integer root loses nothing, since the integer part of a quotient by an integer is
    that of its dividend's integer part.
    """
    a = batch * layer.attention.num_heads
    c = batch * (5 * layer.d_model + layer.feed_forward.d_ff)
    q = max(limit, 0) // (layers * itemsize)
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
    return _decimal(round(Fraction(100 * size, MIB)))


def added_as_shown(sizes: Sequence[int], times: int = 1) -> str:
    """The sum of what `mib` shows of each, so that a column of rounded figures adds up; `times` that."""
    return _decimal(times * sum(int(mib(size).replace(".", "")) for size in sizes))


def growth(size: int, first: int) -> str:
    """How many times `first` it is, with two decimals: 104.86×."""
    return f"{_decimal(round(Fraction(100 * size, first)))}×"


def _decimal(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}"
