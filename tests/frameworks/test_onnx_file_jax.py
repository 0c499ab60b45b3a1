"""A Flax module that somebody exported with jax2onnx."""

from pathlib import Path
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import export
from jax2onnx import to_onnx

D, H, F = 24, 3, 40


class Layer(nn.Module):
    placement: str

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array) -> jax.Array:
        attention = nn.MultiHeadDotProductAttention(num_heads=H, qkv_features=D, name="attention")
        norm1, norm2 = nn.LayerNorm(name="norm1"), nn.LayerNorm(name="norm2")
        hidden, output = nn.Dense(F, name="hidden"), nn.Dense(D, name="output")
        mask = valid[:, None, None, :]
        if self.placement == "pre":
            h = norm1(x)
            x = x + attention(h, h, mask=mask)
            return x + output(nn.gelu(hidden(norm2(x))))
        x = norm1(x + attention(x, x, mask=mask))
        return norm2(x + output(nn.gelu(hidden(x))))


def parameters(tree: Any) -> dict[str, Any]:
    """In the specification's names."""
    found = {}
    for own, name in (("query", "query"), ("key", "key"), ("value", "value"), ("out", "output")):
        held = tree["attention"][own]
        found[f"attention.{name}.weight"] = np.asarray(held["kernel"]).reshape(D, D)
        found[f"attention.{name}.bias"] = np.asarray(held["bias"]).reshape(D)
    for norm in ("norm1", "norm2"):
        found |= {f"{norm}.gain": np.asarray(tree[norm]["scale"]), f"{norm}.shift": np.asarray(tree[norm]["bias"])}
    for name in ("hidden", "output"):
        found[f"feed_forward.{name}.weight"] = np.asarray(tree[name]["kernel"])
        found[f"feed_forward.{name}.bias"] = np.asarray(tree[name]["bias"])
    return found


@pytest.mark.parametrize(("placement", "opset"), [("pre", 18), ("post", 21)])
def test_a_flax_module(strangers: ModuleType, tmp_path: Path, placement: str, opset: int) -> None:
    module = Layer(placement)
    tree = module.init(jax.random.key(0), jnp.zeros((2, 5, D)), jnp.ones((2, 5), bool))["params"]
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    tree = jax.tree.unflatten(
        shape, [0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    )
    B, S = export.symbolic_shape("B, S")
    given = [jax.ShapeDtypeStruct((B, S, D), jnp.float32), jax.ShapeDtypeStruct((B, S), jnp.bool_)]
    model = to_onnx(lambda x, valid: module.apply({"params": tree}, x, valid), inputs=given, opset=opset)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    seen = strangers.looked_into(path, "attend")
    strangers.assert_holds(
        seen,
        parameters(tree),
        norm={"placement": placement, "kind": "layer_norm", "epsilon": float(np.float32(1e-6))},
        attention__num_heads=H,
        attention__fully_masked_row="uniform",
        feed_forward={"d_ff": F, "activation": "gelu_tanh", "bias": True},
    )
    started, _, _ = strangers.adapter(path)
    strangers.assert_hides_padding(started, D)
