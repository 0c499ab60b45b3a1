"""What holds a module on JAX and its parameters, as people keep both: a pair in either order, a state of training."""

from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from bare_jax import layer, parameters
from cases_jax import HIDDEN, D, H, HandsItsMaskOn
from flax import nnx

_X = jnp.zeros((2, 3, D))


class ByPlaceAlone(HandsItsMaskOn):
    def __call__(self, *inputs: Any, method: Any = None) -> Any:  # type: ignore[override]
        return super().__call__(inputs[0], inputs[1] if len(inputs) > 1 else None)


class _Split(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        chosen = {"epsilon": 1e-5, "use_fast_variance": False, "rngs": rngs}
        self.norm1, self.norm2 = nnx.LayerNorm(D, **chosen), nnx.LayerNorm(D, **chosen)
        self.attention = nnx.MultiHeadAttention(H, D, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(D, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, D, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.relu(self.up(self.norm2(x))))


class OfIds(nn.Module):
    """A model from ids whose variables nobody has made. `hands_on`: its mask, to its layers."""

    hands_on: bool = True

    @nn.compact
    def __call__(self, ids: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = nn.Embed(40, D, name="words")(ids) + nn.Embed(16, D, name="places")(jnp.arange(ids.shape[1]))
        hidden = None if mask is None or not self.hands_on else mask == 0
        for number in range(2):
            x = HandsItsMaskOn(name=f"layer{number}")(x, hidden)
        return x


class OfIdsNotHandedOn(OfIds):
    hands_on: bool = False


def by_place_alone() -> Any:
    return ByPlaceAlone(), HandsItsMaskOn().init(jax.random.key(0), _X)


def of_its_apply() -> Any:
    return HandsItsMaskOn().apply, HandsItsMaskOn().init(jax.random.key(0), _X)


def of_its_compiled_apply() -> Any:
    return jax.jit(HandsItsMaskOn().apply), HandsItsMaskOn().init(jax.random.key(0), _X)


def behind_its_variables() -> Any:
    return HandsItsMaskOn().init(jax.random.key(0), _X), HandsItsMaskOn()


def behind_its_parameters() -> Any:
    return parameters(), layer


def that_is_trained() -> Any:
    """As Flax's TrainState, whose package needs an optimiser's."""
    variables = HandsItsMaskOn().init(jax.random.key(0), _X)
    return SimpleNamespace(step=0, apply_fn=HandsItsMaskOn().apply, params=variables["params"], opt_state=())


def that_was_split() -> Any:
    return nnx.split(_Split(nnx.Rngs(0)))


class _DropsOneBranch(_Split):
    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        self.drop, self.drop_of_network = nnx.Dropout(0.1, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: jax.Array, *, deterministic: bool = True) -> jax.Array:
        return self.drop(super().__call__(x), deterministic=deterministic)


def that_drops_one_branch() -> Any:
    return _DropsOneBranch(nnx.Rngs(0))


class PutTogetherAsItLies(nn.Module):
    """Its heads are put together without a transpose."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm()(x)
        q, k, v = (nn.Dense(D)(y).reshape(*x.shape[:2], H, D // H).transpose(0, 2, 1, 3) for _ in range(3))
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / (D // H) ** 0.5)
        made = weights @ v
        rows = made.reshape(x.shape)  # of several positions
        x = x + nn.Dense(D)(rows)
        return x + nn.Dense(D)(nn.gelu(nn.Dense(HIDDEN)(nn.LayerNorm()(x))))


def that_puts_heads_together() -> Any:
    return PutTogetherAsItLies(), PutTogetherAsItLies().init(jax.random.key(0), _X)


class _NormsTwice(_Split):
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        y = self.norm1(x)  # by the first
        return x + self.down(nnx.relu(self.up(y)))


def that_norms_twice() -> Any:
    return _NormsTwice(nnx.Rngs(0))


class _TakesKeysForValues(_Split):
    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        del self.attention
        self.q, self.k, self.v, self.o = (nnx.Linear(D, D, rngs=rngs) for _ in range(4))

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.norm1(x)
        q = self.q(y).reshape(*x.shape[:2], H, -1)
        k = self.k(y).reshape(*x.shape[:2], H, -1)
        v = self.k(y).reshape(*x.shape[:2], H, -1)  # for values
        x = x + self.o(jax.nn.dot_product_attention(q, k, v).reshape(x.shape))
        return x + self.down(nnx.relu(self.up(self.norm2(x))))


def that_takes_keys_for_values() -> Any:
    return _TakesKeysForValues(nnx.Rngs(0))


class _HidesEveryOther(_TakesKeysForValues):
    def __call__(self, x: jax.Array) -> jax.Array:
        y, at = self.norm1(x), jnp.arange(x.shape[1])
        q, k, v = (part(y).reshape(*x.shape[:2], H, -1) for part in (self.q, self.k, self.v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5
        scores = jnp.where((at[:, None] + at) % 2 == 0, scores, -jnp.inf)  # its own
        weights = jax.nn.softmax(scores)
        x = x + self.o(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))
        return x + self.down(nnx.relu(self.up(self.norm2(x))))


def that_hides_by_itself() -> Any:
    return _HidesEveryOther(nnx.Rngs(0))
