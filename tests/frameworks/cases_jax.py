"""Layers on JAX, each of a kind that a pool of public repositories showed to be refused for a reason not theirs."""

from dataclasses import field
from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
from bare_jax import Nnx, layer, parameters
from flax import nnx
from jax.sharding import AxisType, PartitionSpec, reshard

D, H, HIDDEN = 16, 2, 24


class ByItsMethods(nnx.Module):
    """It has no call, and a method for each way to use it."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up, self.down = nnx.Linear(D, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, D, rngs=rngs)

    def encode(self, x: jax.Array) -> jax.Array:
        return self.down(jax.nn.relu(self.up(x)))


class LinenByItsMethods(linen.Module):
    @linen.compact
    def encode(self, x: jax.Array) -> jax.Array:
        return linen.Dense(D)(x)


class EquinoxByItsMethods(eqx.Module):
    up: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.up = eqx.nn.Linear(D, D, key=key)

    def encode(self, x: jax.Array) -> jax.Array:
        return jax.vmap(self.up)(x)


class _OfTwo(linen.Module):
    """As a block of a set transformer: what skips attention is its query."""

    @linen.compact
    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        batch, length, _ = x.shape
        q, k, v = (linen.DenseGeneral((H, D // H))(each) for each in (x, y, y))
        z = linen.LayerNorm()((linen.dot_product_attention(q, k, v) + q).reshape(batch, length, D))
        return linen.LayerNorm()(z + linen.relu(linen.Dense(D)(z)))


class OfOneByTwo(linen.Module):
    """It takes one sequence, and the one part of it that may be a layer takes two."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return _OfTwo()(x, x)


class _EquinoxLayer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        first, second, third = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(H, D, key=first)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(D), eqx.nn.LayerNorm(D)
        self.up, self.down = eqx.nn.Linear(D, HIDDEN, key=second), eqx.nn.Linear(HIDDEN, D, key=third)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


class InAList(eqx.Module):
    """Its layers stand in a list, and it takes ids."""

    table: jax.Array
    layers: list[_EquinoxLayer]

    def __init__(self) -> None:
        key = jax.random.key(0)
        self.table = jax.random.normal(key, (9, D))
        self.layers = [_EquinoxLayer(key)]

    def __call__(self, ids: jax.Array) -> jax.Array:
        x = self.table[ids.astype(int)]
        for each in self.layers:
            x = each(x)
        return x.mean(0)


def pooled_under_a_mask() -> Any:
    """It needs a mask, and gives the sum of each item."""

    def pooled(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.einsum("bs,bsd->bd", mask.astype(x.dtype), layer(p, x))

    return pooled, parameters()


def _dropping(rate: float) -> Any:
    """It drops what a key says in evaluation, too."""

    def kept(x: jax.Array, key: jax.Array) -> jax.Array:
        return x * (jax.random.uniform(key, x.shape) >= rate) / (1 - rate)

    def dropping(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        first, _ = jax.random.split(key)
        return kept(layer(p, x), first)

    return dropping, parameters()


def drops_nothing_of_a_key() -> Any:
    return _dropping(0.0)


def drops_of_a_key() -> Any:
    return _dropping(0.5)


class AddsItsNormToo(linen.Module):
    """What is normed is added to what attention gives of it, and then x to that."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        y = y + linen.MultiHeadDotProductAttention(num_heads=H)(y, y)
        x = y + x
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        return linen.Dense(D)(linen.relu(linen.Dense(HIDDEN)(y))) + x


class EpsilonIsItsSize(linen.Module):
    """What stands first in a norm of Flax is its epsilon, and in one of PyTorch its size."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(D, use_fast_variance=False)(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=H)(y, y)
        y = linen.LayerNorm(D, use_fast_variance=False)(x)
        return x + linen.Dense(D)(linen.relu(linen.Dense(HIDDEN)(y)))


def lies_on_a_mesh() -> Any:
    """What it gives lies on a mesh by its type, as x does not."""
    jax.set_mesh(jax.make_mesh((1,), ("data",), axis_types=(AxisType.Explicit,)))
    return (lambda p, x: reshard(layer(p, x), PartitionSpec("data"))), parameters()


def normed_over_positions() -> Any:
    def normed(x: jax.Array, p: Any, epsilon: float) -> jax.Array:
        mean = x.mean((-1, -2), keepdims=True)
        variance = jnp.square(x - mean).mean((-1, -2), keepdims=True)
        return (x - mean) / jnp.sqrt(variance + epsilon) * p["g"] + p["b"]

    return (lambda p, x: layer(p, x, normed=normed)), parameters()


class HeadsBesidePositions(linen.Module):
    """Its heads are not brought before the positions: the scores are of heads, and values are summed over them."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm()(x)
        q, k, v = (linen.Dense(D)(y).reshape(*x.shape[:2], H, D // H) for _ in range(3))
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / (D // H) ** 0.5, -1)
        context = jnp.einsum("bhqk,bhvd->bhqd", weights, v)
        x = x + linen.Dense(D)(context.reshape(x.shape))
        return x + linen.Dense(D)(linen.gelu(linen.Dense(HIDDEN)(linen.LayerNorm()(x))))


class OfTenPositions(linen.Module):
    """It makes its parameters in a call, and its mask is of as many positions as its block."""

    block_size: int = 10

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        q, k, v = (linen.Dense(D)(y).reshape(*x.shape[:2], H, D // H).swapaxes(1, 2) for _ in range(3))
        seen = jnp.tril(jnp.ones((self.block_size, self.block_size)))
        weights = jax.nn.softmax(jnp.where(seen == 0, -jnp.inf, q @ k.mT / (D // H) ** 0.5), -1)
        x = x + linen.Dense(D)((weights @ v).swapaxes(1, 2).reshape(x.shape))
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        return x + linen.Dense(D)(linen.relu(linen.Dense(HIDDEN)(y)))


class OfASizeInItsConfiguration(linen.Module):
    """Its width is said there alone, and is no usual one; of others it raises sooner or later."""

    config: dict[str, int] = field(default_factory=lambda: {"vocab": 500, "heads": 2, "n_embd": 24})

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        width, heads = self.config["n_embd"], self.config["heads"]
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        q, k, v = (linen.Dense(width)(y).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for _ in range(3))
        context = jax.nn.softmax(q @ k.mT / (width // heads) ** 0.5, -1) @ v
        x = x + linen.Dense(width)(context.swapaxes(1, 2).reshape(x.shape))
        y = linen.LayerNorm(epsilon=1e-5, use_fast_variance=False)(x)
        return x + linen.Dense(width)(linen.relu(linen.Dense(HIDDEN)(y)))


class RaisesAtItsSize(OfASizeInItsConfiguration):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = super().__call__(x)
        raise ValueError("no cache is kept")


class _Turned(eqx.Module):
    """It holds its angles' cosines and sines, which Equinox takes for parameters."""

    cos: jax.Array
    sin: jax.Array

    def __init__(self) -> None:
        size = D // H
        angles = jnp.outer(jnp.arange(512), 10000.0 ** (-jnp.arange(0, size, 2) / size))
        self.cos, self.sin = jnp.cos(angles), jnp.sin(angles)

    def __call__(self, heads: jax.Array) -> jax.Array:
        one, other = jnp.split(heads, 2, -1)
        cos, sin = (each[: heads.shape[0], None] for each in (self.cos, self.sin))
        return jnp.concatenate((one * cos - other * sin, one * sin + other * cos), -1)


class _TurnedByWholeNumbers(eqx.Module):
    """Positions are whole numbers, and multiplied with frequencies that are not."""

    def __call__(self, heads: jax.Array) -> jax.Array:
        frequencies = 10000.0 ** (-jnp.arange(0, D // H, 2) / (D // H))
        angles = jnp.einsum("i,j->ij", jnp.arange(heads.shape[0]), frequencies)[:, None]
        one, other = jnp.split(heads, 2, -1)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate((one * cos - other * sin, one * sin + other * cos), -1)


class HoldsItsAngles(_EquinoxLayer):
    turned: _Turned | _TurnedByWholeNumbers

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))
        self.turned = _Turned()

    def __call__(self, x: jax.Array) -> jax.Array:
        y, attention = jax.vmap(self.norm1)(x), self.attention
        maps = attention.query_proj, attention.key_proj, attention.value_proj
        q, k, v = (jax.vmap(each)(y).reshape(len(x), H, D // H) for each in maps)
        scores = jnp.einsum("qhd,khd->hqk", self.turned(q), self.turned(k)) / (D // H) ** 0.5
        context = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1), v).reshape(x.shape)
        x = x + jax.vmap(attention.output_proj)(context)
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


def without_biases_of_attention() -> Any:
    """Its own biases are named after nothing that they are of."""

    def block(p: Any, x: jax.Array) -> jax.Array:
        def normed(x: jax.Array, gain: jax.Array, shift: jax.Array) -> jax.Array:
            return gain * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) + shift

        y = normed(x, p["ln_1_gamma"], p["ln_1_beta"])
        q, k, v = ((y @ p[name]).reshape(*x.shape[:2], H, D // H).swapaxes(1, 2) for name in ("W_q", "W_k", "W_v"))
        context = jax.nn.softmax(q @ k.mT / (D // H) ** 0.5, -1) @ v
        x = x + context.swapaxes(1, 2).reshape(x.shape) @ p["W_o"]
        hidden = jax.nn.gelu(normed(x, p["ln_2_gamma"], p["ln_2_beta"]) @ p["mlp_in"] + p["b_in"])
        return x + hidden @ p["mlp_out"] + p["b_out"]

    keys = iter(jax.random.split(jax.random.key(0), 12))
    shapes = {f"W_{name}": (D, D) for name in "qkvo"} | {"mlp_in": (D, HIDDEN), "mlp_out": (HIDDEN, D)}
    vectors = dict.fromkeys(("ln_1_gamma", "ln_1_beta", "ln_2_gamma", "ln_2_beta", "b_out"), (D,)) | {"b_in": (HIDDEN,)}
    return block, {name: 0.3 * jax.random.normal(next(keys), shape) for name, shape in (shapes | vectors).items()}


class TurnsByWholeNumbers(HoldsItsAngles):
    def __init__(self) -> None:
        super().__init__()
        self.turned = _TurnedByWholeNumbers()


class _HidesWhatIsTrue(linen.Module):
    @linen.compact
    def __call__(self, y: jax.Array, hidden: jax.Array | None = None) -> jax.Array:
        q, k, v = (linen.Dense(D)(y).reshape(*y.shape[:2], H, D // H).swapaxes(1, 2) for _ in range(3))
        scores = q @ k.mT / (D // H) ** 0.5
        if hidden is not None:
            scores = jnp.where(hidden[:, None, None, :], -jnp.inf, scores)  # of the part
        return linen.Dense(D)((jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(y.shape))


class HandsItsMaskOn(linen.Module):
    """To a part that it names in its setup, as which it is nothing before it is bound."""

    def setup(self) -> None:
        self.attention = _HidesWhatIsTrue()
        self.norm1, self.norm2 = (linen.LayerNorm(epsilon=1e-5, use_fast_variance=False) for _ in range(2))
        self.up, self.down = linen.Dense(HIDDEN), linen.Dense(D)

    def __call__(self, x: jax.Array, attention_mask: jax.Array | None = None) -> jax.Array:
        x = x + self.attention(self.norm1(x), attention_mask)
        return x + self.down(linen.relu(self.up(self.norm2(x))))


class HandsItsMaskToAClass(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, attention_mask: jax.Array | None = None) -> jax.Array:
        first, second = (linen.LayerNorm(epsilon=1e-5, use_fast_variance=False) for _ in range(2))
        x = x + _HidesWhatIsTrue()(first(x), attention_mask)
        return x + linen.Dense(D)(linen.relu(linen.Dense(HIDDEN)(second(x))))


def raises_behind_its_norm() -> Any:
    """Of other widths it raises sooner, and not what ails it."""

    def fails(p: Any, x: jax.Array) -> jax.Array:
        x = x + p["ln_1_gamma"]
        raise ValueError("no mesh is set")

    return fails, {"ln_1_gamma": jnp.ones(D), "w": jnp.ones((HIDDEN, 2 * D))}


class InAPair(HandsItsMaskOn):
    def __call__(self, inputs: Any) -> Any:  # type: ignore[override]
        x, mask = inputs
        return super().__call__(x, mask), mask


class InABatch(HandsItsMaskOn):
    def __call__(self, batch: Any) -> Any:  # type: ignore[override]
        return {**batch, "nodes": super().__call__(batch["nodes"], batch["mask"])}


def of_its_parameters() -> Any:
    return partial(layer, parameters())


def of_its_apply() -> Any:
    module = HandsItsMaskOn()
    return partial(module.apply, module.init(jax.random.key(0), jnp.zeros((2, 3, D))))


def without_its_parameters() -> Any:
    return layer


def made_of_a_key() -> Any:
    """As Haiku makes one of a module: a key stands before whatever the module takes, which draws nothing of it."""

    def apply(p: Any, rng: jax.Array | None, *given: Any, **named: Any) -> jax.Array:
        if rng is None or jnp.shape(rng) != (2,):
            raise ValueError("apply must be called with a key")
        return layer(p, *given, **named)

    return apply, parameters()


def of_a_key_first() -> Any:
    def apply(p: Any, key: jax.Array, x: jax.Array) -> jax.Array:
        return layer(p, x + 0 * jax.random.normal(key, x.shape))

    return apply, parameters()


class NormsByACondition(linen.Module):
    """As a block of a diffusion transformer; another number of its configuration is larger than its width."""

    dim: int = D
    labels: int = 90

    def setup(self) -> None:
        self.norm1, self.norm2 = (linen.LayerNorm(use_scale=False, use_bias=False) for _ in range(2))
        self.attention = linen.SelfAttention(H)
        self.up, self.down, self.of_condition = linen.Dense(HIDDEN), linen.Dense(self.dim), linen.Dense(4 * self.dim)

    def __call__(self, x: jax.Array, c: jax.Array) -> jax.Array:
        gain1, shift1, gain2, shift2 = jnp.split(self.of_condition(linen.silu(c))[:, None], 4, -1)
        x = x + self.attention(self.norm1(x) * (1 + gain1) + shift1)
        return x + self.down(linen.gelu(self.up(self.norm2(x) * (1 + gain2) + shift2)))


def turned_by_products_of_elements() -> Any:
    """Its heads are multiplied with the cosines and sines of each item by an einsum that sums over nothing, and half of
    them with −1 in their place."""

    def turned(t: jax.Array) -> jax.Array:
        batch, _, length, size = t.shape
        angles = jnp.outer(jnp.arange(length), 10000.0 ** (-jnp.arange(0, size, 2) / size))
        cos, sin = (jnp.tile(each, (batch, 1, 2)).astype(t.dtype) for each in (jnp.cos(angles), jnp.sin(angles)))
        half = t.reshape(*t.shape[:-1], 2, -1)[..., ::-1, :].at[..., 0, :].multiply(-1).reshape(t.shape)
        return jnp.einsum("bhsd,bsd->bhsd", t, cos) + jnp.einsum("bhsd,bsd->bhsd", half, sin)

    return (lambda p, x, mask=None: layer(p, x, mask, turned=turned)), parameters()


class NamesWhatItHasNot(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.attend(linen.Dense(D)(x))


class PutsItsHeadsTogetherByHstack(_EquinoxLayer):
    """The heads are rows of one array, of which hstack makes one shape in one step that turns it, too."""

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))

    def __call__(self, x: jax.Array) -> jax.Array:
        y, attention = jax.vmap(self.norm1)(x), self.attention
        maps = attention.query_proj, attention.key_proj, attention.value_proj
        q, k, v = (jnp.array(jnp.split(jax.vmap(each)(y), H, -1)) for each in maps)
        context = jnp.hstack(jax.nn.softmax(q @ k.mT / (D // H) ** 0.5, -1) @ v)
        x = x + jax.vmap(attention.output_proj)(context)
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


class NormsItsElevenPositions(_EquinoxLayer):
    """It takes one item, of as many positions as its norm has rows, and needs a mask beside it."""

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))
        self.norm1 = eqx.nn.LayerNorm((11, D))

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        x = self.norm1(x + self.attention(x, x, x, mask=jnp.broadcast_to(mask > 0, (len(x), len(x)))))
        return jax.vmap(self.norm2)(x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(x))))


class NarrowGelu(nnx.Module):
    """It computes in bfloat16, and so do the numbers of its activation."""

    def __init__(self) -> None:
        narrow: dict[str, Any] = {"dtype": jnp.bfloat16, "rngs": nnx.Rngs(0)}
        self.norm1, self.norm2 = nnx.LayerNorm(D, **narrow), nnx.LayerNorm(D, **narrow)
        self.attention = nnx.MultiHeadAttention(H, D, decode=False, **narrow)
        self.up, self.down = nnx.Linear(D, HIDDEN, **narrow), nnx.Linear(HIDDEN, D, **narrow)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class ResPost(Nnx):
    """Its norms stand after its sub-layers alone."""

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = x + self.norm1(self.dropout(self.attention(x, mask=mask)))
        return x + self.norm2(self.down(self.activation(self.up(x))))
