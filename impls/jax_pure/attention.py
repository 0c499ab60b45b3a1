"""Multi-head attention (E-5), as a pure function of a tree of parameters.

Shapes: B batch, S queries, T keys, D d_model, H num_heads, K heads of keys and values, d head_dim. The tree:

    query, key, value      kernel [D, H or K, d], bias [H or K, d]; where the heads share them (E-12) [d, d], [d]
    query_norm, key_norm   those of a norm, if there is one (E-27)
    position_bias          table [R, H], if there is one (E-23)
    appended_key           vector [K · d], a key that no position has (E-44); and appended_value
    output                 kernel [H, d, D], bias [D]
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.choices import refuse_uneven, refuse_unfit
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.jax_pure.dropout import Drop, Sites, undropped
from encoder_conformance.impls.jax_pure.positions import LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.jax_pure.primitives import Norm, Tree, linear
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax

Heads = tuple[Array, Array, Array]
"""Query [B, S, H, d], key and value [B, T, H, d]; in self-attention T is S."""


class Masks(NamedTuple):
    """Both broadcast to [B, H, S, S]. `allowed`, None or bool, is true where a key may be attended to; `bias`, None or
    in the dtype of x, is added to the scores."""

    allowed: Array | None = None
    bias: Array | None = None
    needed: Array | None = None
    """None or bool [B, S], false at padding that nothing is to be computed with: what `MaskedSoftmax.needed` gives."""
    padding_id: Array | None = None
    """The token id of padding, of which a stack with an embedding makes a mask; None where there is none."""
    positions: Array | None = None
    """None or [B or 1, S], where x or token ids lie; None for 0 … S − 1."""
    valid: Array | None = None
    """None or bool [B, S], false at padding, for positions that do not count it (E-37)."""
    types: Array | None = None
    """None or [B, S], the types of tokens (E-36); None where all are of type 0."""


NO_MASKS = Masks()


def beside_appended(p: Tree, heads: Heads, masks: Masks) -> tuple[Heads, Masks]:
    """With one key and one value more behind those of the positions, which no mask hides (E-44)."""

    def behind(name: str, x: Array) -> Array:
        vector = p[name]["vector"] if name in p else jnp.zeros((), x.dtype)
        last = jnp.broadcast_to(vector if vector.ndim == 0 else vector.reshape(x.shape[2:]), x[:, :1].shape)
        return jnp.concatenate([x, last], axis=1)

    q, k, v = heads
    allowed, bias = (
        None if of_keys is None else jnp.pad(of_keys, [(0, 0)] * (of_keys.ndim - 1) + [(0, 1)], constant_values=value)
        for of_keys, value in ((masks.allowed, True), (masks.bias, 0))
    )
    return (q, behind("appended_key", k), behind("appended_value", v)), masks._replace(allowed=allowed, bias=bias)


@dataclass(frozen=True)
class Attention:
    """softmax(q kᵀ / √scaled_by + bias) v in each of H heads, where scaled_by is d (E-5), D (E-13) or a number, and the
    output projection of them. `dropout` is the rate of the weights. What is None is not there: a norm of queries and
    one of keys, of each head (E-27) or `over_all` of them; a rotation, a bias by position, a window, a cap (E-30); with
    `is_appended` a key and a value that no position has (E-44)."""

    d_model: int
    num_heads: int
    scaled_by: float
    softmax: MaskedSoftmax
    dropout: float = 0.0
    head_dim: int | None = None
    norm: Norm | None = None
    over_all: bool = False
    rotation: Rotation | None = None
    position_bias: PositionBias | LinearBias | None = None
    window: Window | None = None
    softcap: float | None = None
    is_appended: bool = False

    def __post_init__(self) -> None:
        if self.head_dim is None:
            refuse_uneven(self.d_model, self.num_heads)

    def __call__(
        self, p: Tree, x: Array, masks: Masks, tap: Tap[Array], drop: Drop, memory: Array | None = None
    ) -> Array:
        """[B, S, D]. Keys and values are made of `memory` [B, T, D] where it is given (E-17), and else of x."""
        heads = self.project(p, x, x if memory is None else memory, masks.positions, tap)
        if self.is_appended:
            heads, masks = beside_appended(p, heads, masks)
        q, k, v = heads
        heads = (q, *(jnp.repeat(each, self.num_heads // k.shape[2], axis=2) for each in (k, v)))  # E-28
        if self.window is not None:
            masks = masks._replace(allowed=self.window.joined(masks.allowed, x.shape[1]))
        own_bias = None
        if self.position_bias is not None:
            own_bias = self.position_bias(p.get("position_bias", {}), q.shape[1], k.shape[1]).astype(q.dtype)
        # jax.nn.dot_product_attention takes its softmax in float32, whatever it is given (jax-ml/jax#37457), and drops
        # no weights; float16 it does not take on a CPU (keras-team/keras-hub#2354). What is more, is written out.
        fused = q.dtype in (jnp.float32, jnp.bfloat16) and self.softmax.is_fused and self.softcap is None
        if fused and tap is untapped and (drop is undropped or not self.dropout):
            scale, given = 1 / math.sqrt(self.scaled_by), [b for b in (own_bias, masks.bias) if b is not None]
            context = jax.nn.dot_product_attention(*heads, sum(given) if given else None, masks.allowed, scale=scale)
        else:
            context = self.written_out(heads, masks, own_bias, tap, drop)
        merged = tap("context_merged", context.reshape(*context.shape[:2], -1))
        return tap("attention_output", linear(p["output"], merged.reshape(context.shape), axes=2))

    def project(self, p: Tree, x: Array, memory: Array, positions: Array | None, tap: Tap[Array]) -> Heads:
        """The query of x [B, S, D], and the key and the value of `memory` [B, T, D], as the scores take them."""

        def by_heads(name: str, x: Array) -> Array:
            shared = p[name]["kernel"].ndim == 2  # by the heads
            heads = linear(p[name], x.reshape(*x.shape[:2], self.num_heads, -1) if shared else x)
            rows = tap(name, heads.reshape(*heads.shape[:2], -1))  # seen as [B, S, H · d]
            if self.over_all and f"{name}_norm" in p:
                rows = tap(f"{name}_norm", self.norm(p[f"{name}_norm"], rows))
            heads = seen(f"{name}_heads", rows.reshape(heads.shape))
            if not self.over_all and f"{name}_norm" in p:
                heads = seen(f"{name}_heads_norm", self.norm(p[f"{name}_norm"], heads))
            if self.rotation is not None and name != "value":
                heads = seen(f"{name}_rotated", self.rotation(heads, positions))
            return heads

        def seen(name: str, heads: Array) -> Array:
            """[B, S, H, d], seen as [B, H, S, d]."""
            return heads if tap is untapped else tap(name, heads.swapaxes(1, 2)).swapaxes(1, 2)

        return by_heads("query", x), by_heads("key", memory), by_heads("value", memory)

    def written_out(self, heads: Heads, masks: Masks, own_bias: Array | None, tap: Tap[Array], drop: Drop) -> Array:
        """Compute jax.nn.dot_product_attention step by step, in the dtype of q. [B, S, H, d] in and out."""
        q, k, v = (head.swapaxes(1, 2) for head in heads)  # [B, H, S, d]
        scores = tap("attention_scores", q @ k.swapaxes(-1, -2) / math.sqrt(self.scaled_by))  # [B, H, S, T]
        if own_bias is not None:
            scores = tap("position_biased", scores + own_bias)
        if self.softcap is not None:
            scores = tap("capped", self.softcap * jnp.tanh(scores / self.softcap))
        if masks.bias is not None:
            scores = scores + masks.bias
        weights = tap("attention_weights", self.softmax(scores, masks.allowed))
        weights = drop("attention_weights", self.dropout, weights)
        return tap("context", weights @ v).swapaxes(1, 2)

    def sites(self, p: Tree, x: Array) -> Sites:
        B, S, _ = x.shape
        return {"attention_weights": (self.dropout, (B, self.num_heads, S, S))}

    def check_fit(self, p: Tree, x: Array, mask: Array | None) -> None:
        """Refuse what JAX would promote to a wider dtype, or broadcast (X-1)."""
        if x.dtype != (dtype := p["output"]["kernel"].dtype):
            raise TypeError(f"x is {x.dtype}, and the layer is {dtype}")
        refuse_unfit(x.shape, None if mask is None else mask.shape, self.d_model, self.num_heads)
