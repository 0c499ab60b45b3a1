"""In JAX and TensorFlow, too, an export that an earlier command kept is that of the very same graph and values."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from jax2onnx import plugins

from encoder_conformance.impls.bases.jax_layers.exporter import exporter
from encoder_conformance.readers.module_target.frameworks import jax_export, kept_exports, tensorflow_export
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

D = 8
SHAPE = (2, 3, D)
X = np.linspace(-1, 1, 2 * 3 * D, dtype="f4").reshape(SHAPE)


def weight(times: float = 1.0) -> Any:
    return times * np.linspace(-0.5, 0.5, D * D, dtype="f4").reshape(D, D)


def of_jax(times: float = 1.0, scale: float = 0.5, inner: float = 1.0) -> Callable[[Any], Any]:
    held, table = jnp.asarray(weight(times)), jnp.asarray(weight(inner))
    inside = jax.jit(lambda x: x @ table)  # a constant of a function in the function
    return lambda x: x + scale * jax.nn.relu(inside(x @ held))


def of_tensorflow(times: float = 1.0, scale: float = 0.5, inner: float = 1.0) -> Callable[[Any], Any]:
    held, table = tf.Variable(weight(times)), weight(inner)
    return lambda x: x + scale * tf.nn.relu((x @ held) @ table)


FRAMEWORKS = {"jax": (jax_export, of_jax), "tensorflow": (tensorflow_export, of_tensorflow)}


@pytest.fixture(params=list(FRAMEWORKS))
def answers(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the export of a function gives of X, and how many exports are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    export, function = FRAMEWORKS[request.param]

    def of(**choices: float) -> tuple[Any, int]:
        model = export.exported(function(**choices), SHAPE)
        [given] = model.graph.input
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        [output] = session.run(None, {given.name: X})
        return output, len(list((tmp_path / "encoder-conformance" / "exports").iterdir()))

    return of


def due(times: float = 1.0, scale: float = 0.5, inner: float = 1.0) -> Any:
    return X + scale * np.maximum(X @ weight(times) @ weight(inner), 0)


def test_one_function_is_exported_once(answers: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, kept = answers()
    monkeypatch.setitem(sys.modules, "jax2onnx", None)  # no exporter is there any more
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    second, then = answers()
    assert (kept, then) == (1, 1)
    assert np.array_equal(first, second)
    np.testing.assert_allclose(first, due(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ExecutionError, match="is not installed"):
        answers(times=2.0)


@pytest.mark.parametrize("name", ["times", "scale", "inner"])
def test_another_function_is_exported_itself(name: str, answers: Callable[..., Any]) -> None:
    answers()
    output, kept = answers(**{name: 2.0})
    assert kept == 2
    np.testing.assert_allclose(output, due(**{name: 2.0}), rtol=1e-5, atol=1e-6)


def test_what_another_version_kept_is_exported_again(
    answers: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers()
    monkeypatch.setattr(kept_exports, "made_by", lambda packages: ["another"])
    assert answers()[1] == 2


def test_what_needs_no_library_is_imported_for_real() -> None:
    """The plugins for JAX's own functions hold numbers, and nothing of a trace."""
    exporter()(lambda x: jax.nn.softmax(x), [jax.ShapeDtypeStruct(SHAPE, jnp.float32)])
    own = [module for name, module in list(sys.modules.items()) if name.startswith(f"{plugins.__name__}.jax.")]
    traced = [value for module in own for value in vars(module).values() if isinstance(value, jax.core.Tracer)]
    assert own
    assert not traced
