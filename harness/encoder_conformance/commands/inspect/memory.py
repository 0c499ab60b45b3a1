"""The activation memory of one forward pass, part by part, in bytes: exact integers, from the sizes alone."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt, prod

from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.spec.plan import layer_sizes
from encoder_conformance.spec.stages import axes_of

MIB = 2**20
_STAGES = {
    "input": ("x",),
    "qkv": ("query", "key", "value"),
    "attn_scores": ("attention_scores",),
    "attn_out": ("attention_output",),
    "ffn_hidden": ("ffn_hidden",),
}
"""Part → the stages that it counts. Every part counts once, as if nothing were freed and nothing stored twice."""


def _axes(part: str) -> list[str]:
    """The letters of the axes of each stage of a part, of a classic layer: P and G are D, and K is H."""
    classic = str.maketrans("PGK", "DDH")
    return [axes_of(stage).translate(classic) if stage != "x" else "B S D" for stage in _STAGES[part]]


def _count(part: str) -> str:
    axes = _axes(part)
    product = axes[0].replace("S S", "S²").replace(" ", "·")
    return product if len(axes) == 1 else f"{len(axes)}·{product}"


PARTS: dict[str, str] = {part: _count(part) for part in _STAGES}
"""Part → number of elements."""

PUBLISHED_PARTS = tuple(part for part in PARTS if part != "attn_out")
"""A published estimate of one forward pass counts these four, another all five (docs/systems.md, A and D)."""
STATES: dict[str, dict[str, int]] = {
    "weights": {"weights": 1},
    "sgd": {"weights": 1, "gradients": 1},
    "momentum": {"weights": 1, "gradients": 1, "momentum": 1},
    "adam": {"weights": 1, "gradients": 1, "two moments": 2},
}
"""Option of --states → the arrays stored for every parameter → elements of each per parameter, in the layer's dtype.

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
    sizes = layer_sizes(layer) | {"B": batch, "S": sequence}
    return {
        part: itemsize * sum(prod(sizes[letter] for letter in axes.split()) for axes in _axes(part)) for part in _STAGES
    }


def total(layer: Layer, batch: int, sequence: int, itemsize: int, layers: int = 1) -> int:
    """Bytes of every part of `layers` layers."""
    return layers * sum(parts(layer, batch, sequence, itemsize).values())


def states(layer: Layer, kept: str, itemsize: int, layers: int) -> dict[str, int]:
    """State → bytes, of all parameters of `layers` layers, and of the stack's embedding and final norm if it has them.

    `kept` is a key of `STATES`.
    """
    stack = layer.stack.model_copy(update={"layers": layers})
    count = parameter_count(layer.model_copy(update={"stack": stack}))
    return {state: arrays * count * itemsize for state, arrays in STATES[kept].items()}


def longest_sequence(layer: Layer, batch: int, itemsize: int, layers: int, limit: int) -> int:
    """The largest S whose `total` is at most `limit` bytes; 0 if there is none, and where `limit` is below 0.

    In elements per layer that is a·S² + c·S ≤ q, so S is the integer part of (√(c² + 4·a·q) − c) / 2a; the integer root
    loses nothing, since the integer part of a quotient by an integer is that of its dividend's integer part.
    """
    sizes = layer_sizes(layer) | {"B": batch, "S": 1}
    coefficients = {1: 0, 2: 0}  # of S and of S²
    for axes in (axes.split() for part in _STAGES for axes in _axes(part)):
        coefficients[axes.count("S")] += prod(sizes[letter] for letter in axes)
    c, a = coefficients[1], coefficients[2]
    q = max(limit, 0) // (layers * itemsize)
    return (isqrt(c * c + 4 * a * q) - c) // (2 * a)


def parse_amount(text: str, where: str) -> int:
    """`8GiB`, `512 MiB` or `1.5GB` in bytes: KiB, MiB, GiB, TiB by 1024, KB, MB, GB, TB by 1000. Raises InputError."""
    match = _AMOUNT.fullmatch(text)
    unit = {name.lower(): size for name, size in _UNITS.items()}.get(match[2].lower()) if match else None
    if match is None or unit is None or Fraction(match[1]) == 0:
        hint = f"a number above 0 and a unit, such as 8GiB; units: {', '.join(_UNITS)}"
        raise InputError(f"{text!r} is no amount of memory", where=where, hint=hint)
    return int(Fraction(match[1]) * unit)


def mib(size: int) -> str:
    """The size in MiB with two decimals; a half goes to the even digit, so 3.125 is 3.12 and 9.375 is 9.38."""
    return _decimal(round(Fraction(100 * size, MIB)))


def added_as_shown(sizes: Sequence[int], times: int = 1) -> str:
    """`times` the sum of the sizes as `mib` rounds them, so that a column of rounded figures adds up."""
    return _decimal(times * sum(int(mib(size).replace(".", "")) for size in sizes))


def growth(size: int, first: int) -> str:
    """The ratio `size` / `first` with two decimals: 104.86×."""
    return f"{_decimal(round(Fraction(100 * size, first)))}×"


def _decimal(hundredths: int) -> str:
    return f"{hundredths // 100}.{hundredths % 100:02d}"
