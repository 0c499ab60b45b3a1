"""What exporters are known to do to fused attention, masks, GELU and reshapes, which the exporters therefore avoid.

Each is a fact about a release, pinned in requirements.txt: where a newer one has mended it, its test fails here, and
docs/onnx.md and the exporter's comment are to say so.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

X = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)
"""[batch, num_heads, sequence, head_dim], for query, key and value."""
MEAN = X[1, 0].mean(axis=0)
"""What uniform weights give in item 1, head 0."""


def none_in_item_1(*shape: int) -> np.ndarray:
    mask = np.ones(shape, np.bool_)
    mask[1] = False
    return mask


def ran(model: Any, *given: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    named = {stated.name: value for stated, value in zip(session.get_inputs(), given, strict=True)}
    output: np.ndarray = session.run(None, named)[0]
    return output


def sdpa(opset: int, mask: np.ndarray) -> tuple[Any, np.ndarray]:
    """PyTorch's fused attention as an ONNX model, and what PyTorch itself gives."""
    import torch
    from torch.nn import functional as F

    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    given = torch.tensor(X), torch.tensor(mask)
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    of_mask = {0: batch, 3: sequence} | ({2: sequence} if mask.shape[2] > 1 else {})
    free = {0: batch, 2: sequence}, of_mask
    program = torch.onnx.export(
        Attention(), given, dynamic_shapes=free, opset_version=opset, dynamo=True, verbose=False
    )
    return program.model_proto, Attention()(*given).numpy()


def test_pytorch_fused_attention_gives_a_query_with_no_key_nothing_and_its_opset_18_the_mean() -> None:
    mask = none_in_item_1(2, 3, 5, 5)
    model, eager = sdpa(18, mask)
    assert np.all(eager[1, 0] == 0)
    assert np.allclose(ran(model, X, mask)[1, 0], MEAN, atol=1e-5)


def test_pytorch_fused_attention_of_opset_23_is_refused_with_a_mask_of_one_query() -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    mask = none_in_item_1(2, 1, 1, 5)
    model, _ = sdpa(23, mask)
    with pytest.raises(Fail, match="inconsistent q_sequence_length"):
        ran(model, X, mask)
    whole = none_in_item_1(2, 3, 5, 5)
    model, eager = sdpa(23, whole)
    assert np.allclose(ran(model, X, whole), eager, atol=1e-5), "given whole it is right, and gives nothing, too"


def test_jax_fused_attention_gives_a_query_with_no_key_the_mean_and_its_export_nothing() -> None:
    import jax
    from jax2onnx import to_onnx

    x, mask = X.swapaxes(1, 2).copy(), none_in_item_1(2, 3, 5, 5)

    def attention(x: jax.Array, mask: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(x, x, x, mask=mask)

    given = [jax.ShapeDtypeStruct(x.shape, "float32"), jax.ShapeDtypeStruct(mask.shape, "bool")]
    assert np.allclose(np.asarray(attention(x, mask))[1, :, 0], MEAN, atol=1e-5)
    assert np.all(ran(to_onnx(attention, given, opset=23), x, mask)[1, :, 0] == 0)


def test_jax2onnx_folds_two_reshapes_around_an_output_and_not_where_a_barrier_is_between() -> None:
    import jax
    from jax import export
    from jax2onnx import to_onnx

    def hidden_and_output(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = (x.reshape(-1, 4) @ X[0, 0, :4]).reshape(x.shape)
        activation = jax.nn.relu(hidden)
        return hidden, (activation.reshape(-1, 4) @ X[0, 0, :4]).reshape(x.shape)

    def guarded(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.optimization_barrier(hidden_and_output(x))

    B, S = export.symbolic_shape("batch, sequence")
    given = [jax.ShapeDtypeStruct((B, S, 4), "float32")]
    hidden = np.asarray(hidden_and_output(X[0])[0])
    assert ran(to_onnx(hidden_and_output, given), X[0]).shape == (15, 4)
    assert np.allclose(ran(to_onnx(guarded, given), X[0]), hidden, atol=1e-5)


def keras_model(tmp_path: Path, function: Any, *given: np.ndarray) -> Any:
    """A Keras layer of this function, exported by Keras."""
    from encoder_conformance.impls.keras_tf import adapter  # noqa: F401  (chooses Keras' backend)

    import keras  # isort: skip
    import onnx

    inputs = [keras.Input((None, *value.shape[2:]), dtype=value.dtype.name) for value in given]
    model = keras.Model(inputs, keras.layers.Lambda(lambda taken: function(*taken))(inputs))
    model(list(given))
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    return onnx.load(tmp_path / "model.onnx")


def test_keras_exact_gelu_is_written_as_an_operator_that_onnx_has_not(tmp_path: Path) -> None:
    import onnx

    def gelu(x: Any) -> Any:
        import keras

        return keras.activations.gelu(x)

    model = keras_model(tmp_path, gelu, X[0])
    assert "Erfc" in {node.op_type for node in model.graph.node}
    with pytest.raises(onnx.checker.ValidationError, match="Erfc"):
        onnx.checker.check_model(model)
