"""A Transformer encoder layer, batch first: sub-layers one after the other, or side by side, as a pure function of its
parameters.

Sizes and choices are frozen dataclasses, hashable for `jax.jit`. The parameters of a layer are a tree: those of its
bodies by name (`attention`, `feed_forward`), and those of its norms and gains by number (`norm1`, `norm_after1`,
`layer_scale1`).
"""

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.jax_pure.attention import NO_MASKS, Attention, Masks
from encoder_conformance.impls.jax_pure.dropout import Drop, Sites, drawn_bits, dropped, undropped
from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
from encoder_conformance.impls.jax_pure.primitives import Norm, Tree


@dataclass(frozen=True)
class SubLayer:
    """A residual sum around a body, with its norm before the body (E-3), after it (E-25) or of the sum (E-4): what is
    None is not there. What the body gives is multiplied by a gain where there is one (E-31), and by a weight (E-29).
    `name` is the body's among the parameters, `output` the stage that it gives, `dropout` the rate of the sum."""

    name: str
    output: str
    body: Attention | FeedForward
    dropout: float = 0.0
    norm_before: Norm | None = None
    norm_after: Norm | None = None
    norm_of_sum: Norm | None = None
    weight: float = 1.0

    def __call__(self, params: Tree, number: int, x: Array, masks: Masks, tap: Tap[Array], drop: Drop) -> Array:
        """[B, S, D]. `number` counts the sub-layers of a layer from 1, as stages and norms do."""
        norm = f"norm{number}"
        x = tap(f"residual{number}", x + self.branch(params, number, x, masks, tap, drop))
        return x if self.norm_of_sum is None else tap(norm, self.norm_of_sum(params[norm], x))

    def branch(self, params: Tree, number: int, x: Array, masks: Masks, tap: Tap[Array], drop: Drop) -> Array:
        """What is added, [B, S, D]."""
        norm = f"norm{number}"
        h = x if self.norm_before is None else tap(norm, self.norm_before(params[norm], x))
        h = self.body(params[self.name], h, masks, tap, drop)
        if self.norm_after is not None:
            h = tap(f"{self.output}_norm", self.norm_after(params[f"norm_after{number}"], h))
        if f"layer_scale{number}" in params:
            h = tap(f"{self.output}_scaled", h * params[f"layer_scale{number}"]["gain"])
        if self.weight != 1.0:
            h = self.weight * h
        return drop(f"residual{number}", self.dropout, h)

    def sites(self, params: Tree, number: int, x: Array) -> Sites:
        return {**self.body.sites(params[self.name], x), f"residual{number}": (self.dropout, x.shape)}


@dataclass(frozen=True)
class EncoderLayer:
    """`parallel`: both sub-layers read x (E-41), by `shared_norm` where it is given."""

    sublayers: tuple[SubLayer, ...]
    parallel: bool = False
    shared_norm: Norm | None = None

    def __call__(
        self, params: Tree, x: Array, masks: Masks = NO_MASKS, tap: Tap[Array] = untapped, key: Array | None = None
    ) -> Array:
        """x [B, S, D]. With `key`, in training: what dropout is drawn from."""
        self.attention.check_fit(params["attention"], x, masks.allowed)
        drop = undropped if key is None else partial(dropped, drawn_bits(self.sites(params, x), key))
        if masks.needed is not None:
            x = jnp.where(masks.needed[:, :, None], x, 0)
        if self.parallel:
            given = x if self.shared_norm is None else tap("norm1", self.shared_norm(params["norm1"], x))
            for number, sublayer in enumerate(self.sublayers, 1):
                x = x + sublayer.branch(params, number, given, masks, tap, drop)
            return tap("output", tap("residual2", x))
        for number, sublayer in enumerate(self.sublayers, 1):
            x = sublayer(params, number, x, masks, tap, drop)
        return tap("output", x)

    @property
    def attention(self) -> Attention:
        [attention] = (sublayer.body for sublayer in self.sublayers if isinstance(sublayer.body, Attention))
        return attention

    def sites(self, params: Tree, x: Array) -> Sites:
        of_each = (sublayer.sites(params, number, x) for number, sublayer in enumerate(self.sublayers, 1))
        return {name: site for sites in of_each for name, site in sites.items()}
