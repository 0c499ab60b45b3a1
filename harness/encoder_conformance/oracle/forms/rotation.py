"""Rotary position embedding (E-22), and its wrong forms."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, narrowed
from encoder_conformance.oracle.tape import Pullback, Step
from encoder_conformance.spec.axes import BSA, Array, BHSd

Pairs = tuple[Array, Array]
"""The first and the second feature of each pair."""


def halves(size: int) -> Pairs:
    """Feature i and feature i + n / 2 (GPT-NeoX, Llama)."""
    first = np.arange(size // 2)
    return first, first + size // 2


def interleaved(size: int) -> Pairs:
    """Features 2i and 2i + 1 (RoFormer, GPT-J)."""
    first = 2 * np.arange(size // 2)
    return first, first + 1


@dataclass(frozen=True)
class Turned:
    """How features are turned: which are a pair, and by which angle."""

    pairs: Callable[[int], Pairs] = halves
    first: int = 0
    """The position that x begins with, where none is given."""
    sign: float = 1.0
    theta: Callable[[float], float] = float
    size: Callable[[int, int], int] = lambda rotated, d: rotated
    """(the features to rotate, those of a head) → the features that are rotated."""
    tiled: bool = False
    """Whether pair i turns by the angle of pair (2i) mod (n / 2): frequencies laid out for the other pairing."""
    narrow: str = ""
    """The format that cosine and sine are rounded to."""

    def rotated(
        self, a: Arithmetic, x: BHSd, theta: float, rotated: int, positions: BSA | None
    ) -> tuple[BHSd, Pullback]:
        """x [B, H, S, d]: pair i of the first n features turned by s · theta^(−2i / n) at position s.

        `positions`: s as [B or 1, S, 1]; None for 0 … S − 1. `rotated`: n.
        """
        n = self.size(rotated, x.shape[-1])
        cos, sin = self._waves(a, x.shape[-2], n, self.theta(theta), positions)
        one, two = self.pairs(n)

        def turn(y: BHSd, sign: float) -> BHSd:
            turned = y.copy()
            first, second = y[..., one], y[..., two]
            turned[..., one] = a.subtract(a.multiply(first, cos), sign * a.multiply(second, sin))
            turned[..., two] = a.add(a.multiply(second, cos), sign * a.multiply(first, sin))
            return turned

        return turn(x, self.sign), lambda g: (turn(g, -self.sign),)

    def _waves(self, a: Arithmetic, S: int, n: int, theta: float, positions: BSA | None) -> Pairs:
        """Cosine and sine, [S, n / 2] or [B or 1, 1, S, n / 2].

        The power is written as exp(−2i · (ln theta / n)), which rounds most, as in E-16.
        """
        at = np.arange(S, dtype=np.float64)[:, None] if positions is None else positions[:, None]
        pair = 2.0 * np.arange(n // 2)
        step = a.divide(a.log(a.exact(theta)), a.exact(float(n)))
        frequency = a.exp(-a.multiply(a.exact(pair), step))
        if self.tiled:
            frequency = frequency[2 * np.arange(n // 2) % max(1, n // 2)]
        angle = a.multiply(a.exact(at + self.first), frequency)
        cos, sin = a.cos(angle), a.sin(angle)
        return (narrowed(cos, self.narrow), narrowed(sin, self.narrow)) if self.narrow else (cos, sin)

    @property
    def step(self) -> Step:
        def rotation(
            a: Arithmetic, x: BHSd, *, theta: float, rotated: int, positions: BSA | None = None
        ) -> tuple[BHSd, Pullback]:
            return self.rotated(a, x, theta, rotated, positions)

        return rotation


def _left_out(a: Arithmetic, x: BHSd, **choices: object) -> BHSd:
    return x


def _wrong(pairs: Callable[[int], Pairs]) -> dict[str, Step]:
    """The wrong forms of a rotation of such pairs."""
    wrong = {
        "from-1": Turned(pairs, first=1),
        "backwards": Turned(pairs, sign=-1.0),
        "theta-10000": Turned(pairs, theta=lambda theta: 1e4),
        "theta-500000": Turned(pairs, theta=lambda theta: 5e5),
        "of-all-features": Turned(pairs, size=lambda rotated, d: d - d % 2),
        "frequencies-tiled": Turned(pairs, tiled=True),
        "angles-in-bfloat16": Turned(pairs, narrow="bfloat16"),
    }
    return {**{name: forward_only(_value_of(each)) for name, each in wrong.items()}, "missing": forward_only(_left_out)}


def _value_of(turned: Turned) -> Callable[..., BHSd]:
    return lambda *operands, **choices: turned.step(*operands, **choices)[0]


ROTATION = Form(
    {
        "standard": Turned(halves).step,
        "interleaved": Turned(interleaved).step,
        "other-pairs": forward_only(_value_of(Turned(interleaved))),
        **_wrong(halves),
        **forms_of("interleaved", {**_wrong(interleaved), "other-pairs": forward_only(_value_of(Turned(halves)))}),
    },
    {
        "standard": "rotate({0}, {theta!r}, {rotated!r}, 'halves')",
        "interleaved": "rotate({0}, {theta!r}, {rotated!r}, 'interleaved')",
    },
)
