"""Rotary position embedding (E-22), and its wrong forms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, in_float32, narrowed
from encoder_conformance.oracle.forms.needs import NORMED_HEADS, PARTLY_ROTATED, PLACED, not_its_theta
from encoder_conformance.oracle.forms.norm import VARIANTS as NORMS
from encoder_conformance.oracle.tape import Pullback, Step
from encoder_conformance.spec.axes import BSA, Array, BHSd, BHTd, D, Elementwise

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


Sizes = Callable[[int, int], int]
"""(n, the features to rotate; those of a head) → another size."""


@dataclass(frozen=True)
class Turned:
    """How features are turned: which are a pair, and by which angle."""

    pairs: Callable[[int], Pairs] = halves
    first: int = 0
    """The position that x begins with, where none is given."""
    signs: tuple[float, float] = (1.0, 1.0)
    """What a pair's sines are multiplied by."""
    theta: Callable[[float], float] = float
    size: Sizes = lambda rotated, d: rotated
    """The number of features that are rotated."""
    start: Sizes = lambda rotated, d: 0
    """The first of them."""
    over: Sizes = lambda rotated, d: rotated
    """The size by which the power of theta is divided."""
    laid_by: Callable[[int], Pairs] | None = None
    """The pairs by which the angles are laid out over the features, where they are others."""
    narrow: str = ""
    """The format that positions, frequencies and angles are rounded to."""
    exchanged: bool = False
    """Whether sine and cosine stand in each other's place."""
    placed: bool = True
    """Whether the positions that are given count."""

    def rotated(
        self, a: Arithmetic, x: BHSd, theta: float, rotated: int, positions: BSA | None
    ) -> tuple[BHSd, Pullback]:
        """x [B, H, S, d]: pair i of the first n features turned by s · theta^(−2i / n) at position s.

        `positions`: s as [B or 1, S, 1]; None for 0 … S − 1. `rotated`: n.
        """
        d = x.shape[-1]
        n, start = self.size(rotated, d), self.start(rotated, d)
        cos, sin = self._waves(a, x.shape[-2], n, self.over(n, d), self.theta(theta), positions)
        one, two = self.pairs(n)
        at_one, at_two = self._angle_of(one, n), self._angle_of(two, n)

        def turn(y: BHSd, direction: float) -> BHSd:
            turned = y.copy()
            first, second = y[..., start + one], y[..., start + two]
            minus, plus = (direction * sign for sign in self.signs)
            turned[..., start + one] = a.subtract(
                a.multiply(first, cos[..., at_one]), minus * a.multiply(second, sin[..., at_one])
            )
            turned[..., start + two] = a.add(
                a.multiply(second, cos[..., at_two]), plus * a.multiply(first, sin[..., at_two])
            )
            return turned

        return turn(x, 1.0), lambda g: (turn(g, -1.0),)

    def _angle_of(self, features: Elementwise, n: int) -> Elementwise:
        """The number of the angle that each of the features is turned by."""
        number = np.empty(n, dtype=np.int64)
        for of_pair in (self.laid_by or self.pairs)(n):
            number[of_pair] = np.arange(n // 2)
        return number[features]

    def _waves(self, a: Arithmetic, S: int, n: int, over: int, theta: float, positions: BSA | None) -> Pairs:
        """Cosine and sine, [S, n / 2] or [B or 1, 1, S, n / 2].

        The power is written as exp(−2i · (ln theta / n)), which rounds most, as in E-16.
        """
        counted = positions is None or not self.placed
        at = np.arange(S, dtype=np.float64)[:, None] if counted else positions[:, None]  # type: ignore[index]
        pair = 2.0 * np.arange(n // 2)
        step = a.divide(a.log(a.exact(theta)), a.exact(float(over)))
        frequency = self._narrowed(a.exp(-a.multiply(a.exact(pair), step)))
        angle = self._narrowed(a.multiply(self._narrowed(a.exact(at + self.first)), frequency))
        cos, sin = a.cos(angle), a.sin(angle)
        return (sin, cos) if self.exchanged else (cos, sin)

    def _narrowed(self, x: Elementwise) -> Elementwise:
        return narrowed(x, self.narrow) if self.narrow else x

    @property
    def step(self) -> Step:
        def rotation(
            a: Arithmetic, x: BHSd, *, theta: float, rotated: int, positions: BSA | None = None, **norm: Any
        ) -> tuple[BHSd, Pullback]:
            return self.rotated(a, x, theta, rotated, positions)

        return rotation


def _left_out(a: Arithmetic, x: BHSd, **choices: object) -> BHSd:
    return x


def _whole(rotated: int, d: int) -> int:
    """All features of a head, but for an odd one."""
    return d - d % 2


def _wrong(pairs: Callable[[int], Pairs], other: Callable[[int], Pairs]) -> dict[str, Step]:
    """The wrong forms of a rotation of such pairs; `other` are those of the other pairing."""
    wrong = {
        "other-pairs": Turned(other),
        "laid-by-other-pairs": Turned(pairs, laid_by=other),
        "from-1": Turned(pairs, first=1),
        "positions-ignored": Turned(pairs, placed=False),
        "backwards": Turned(pairs, signs=(-1.0, -1.0)),
        "sign-missing": Turned(pairs, signs=(-1.0, 1.0)),
        "waves-exchanged": Turned(pairs, exchanged=True),
        "power-halved": Turned(pairs, over=lambda n, d: 2 * n),
        "of-all-features": Turned(pairs, size=_whole, over=_whole),
        "of-last-features": Turned(pairs, start=lambda rotated, d: d - rotated),
        "power-over-all-features": Turned(pairs, over=lambda n, d: d),
        **{f"theta-{theta}": Turned(pairs, theta=lambda _, theta=theta: float(theta)) for theta in THETAS},  # type: ignore[misc]
        **{f"angles-in-{dtype}": Turned(pairs, narrow=dtype) for dtype in ("bfloat16", "float16")},
    }
    right = Turned(pairs)
    return {
        **{name: forward_only(_value_of(each)) for name, each in wrong.items()},
        "missing": forward_only(_left_out),
        "then-normed": forward_only(_then_normed(right)),
        "in-float32": in_float32(right.step),
    }


THETAS = (10000, 500000, 1000000)
"""Those that others' layers have by default, where a layer states its own."""


def _value_of(turned: Turned) -> Callable[..., BHSd]:
    return lambda *operands, **choices: turned.step(*operands, **choices)[0]


def _then_normed(turned: Turned) -> Callable[..., BHSd]:
    """Turned before it is normed, where E-27 norms before it turns."""

    def normed(a: Arithmetic, x: BHSd, *, gain: D, shift: D, norm: str, epsilon: float, **choices: Any) -> BHSd:
        value: BHSd = NORMS[norm](a, turned.step(a, x, **choices)[0], gain, shift, epsilon)[0]
        return value

    return normed


_PARTLY = ("of-all-features", "of-last-features", "power-over-all-features")
ROTATION = Form(
    {
        "standard": Turned(halves).step,
        "interleaved": Turned(interleaved).step,
        **_wrong(halves, interleaved),
        **forms_of("interleaved", _wrong(interleaved, halves)),
    },
    {
        "standard": "rotate({0}, {theta!r}, {rotated!r}, 'halves')",
        "interleaved": "rotate({0}, {theta!r}, {rotated!r}, 'interleaved')",
    },
    needs={
        "positions-ignored": (PLACED,),
        "then-normed": (NORMED_HEADS,),
        **dict.fromkeys(_PARTLY, (PARTLY_ROTATED,)),
        **{f"theta-{theta}": (not_its_theta(theta),) for theta in THETAS},
    },
)


def turned_values(a: Arithmetic, value: BHTd, *, right: str, **choices: Any) -> BHTd:
    """Values turned as queries and keys are: RoFormer's rotary_value."""
    return _value_of(Turned(halves if right == "standard" else interleaved))(a, value, **choices)
