"""A file of weights that Keras wrote becomes an ONNX file with its numbers, and any other file is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from encoder_conformance.impls.keras_tf.building import layer_of
from encoder_conformance.impls.keras_tf.encoder import EncoderLayer
from encoder_conformance.spec.load import load

POST_RELU = load().layers["post-relu"]


def trained(layer: str) -> EncoderLayer:
    """The encoder as a user has it after training, with weights that no initialisation gives."""
    chosen = load().layers[layer]
    encoder = layer_of(chosen.model_dump(mode="json"), "float32", 0)
    encoder(np.zeros((1, 2, chosen.d_model), np.float32))
    draw = np.random.default_rng(0)
    encoder.set_weights([draw.normal(0, 0.3, weight.shape).astype(np.float32) for weight in encoder.get_weights()])
    return encoder


def saved(weights: Any, path: Path) -> Path:
    keras.saving.save_weights(weights, path)
    return path


def test_saved_weights_become_a_file_with_their_numbers(conform: Callable, tmp_path: Path) -> None:
    encoder, target = trained("post-relu"), tmp_path / "model.onnx"
    weights = saved(encoder, tmp_path / "trained.weights.h5")
    ended = conform("export", "onnx_keras", "--layer", "post-relu", "--checkpoint", weights, "--to", target)
    assert ended.status == 0, ended.stderr
    model = onnx.load(target)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.array_equal(held["attention.query.weight"], encoder.attention.query.kernel.numpy())
    assert np.array_equal(held["norm2.gain"].reshape(-1), encoder.norm2.gamma.numpy())
    assert [given.name for given in model.graph.input] == ["x", "mask"]
    judged = conform("validate", target, "--layer", "post-relu", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    assert judged.status == 0, judged.stdout


def of_another_layer(folder: Path) -> Path:
    return saved(trained("pre-gelu"), folder / "other.weights.h5")


def without_biases(folder: Path) -> Path:
    return saved(trained("post-rms-silu-dropout"), folder / "other.weights.h5")


def of_a_model_around_it(folder: Path) -> Path:
    around = keras.Sequential([keras.Input((None, POST_RELU.d_model)), trained("post-relu")])
    return saved(around, folder / "model.weights.h5")


def of_a_layer_with_more(folder: Path) -> Path:
    class Deeper(EncoderLayer):
        def build(self, shape: Any) -> None:
            super().build(shape)
            self.gate = self.add_weight(shape=(3,), name="gate")

    deeper = Deeper(*layer_of(POST_RELU.model_dump(mode="json"), "float32", 0).sublayers)
    deeper(np.zeros((1, 2, POST_RELU.d_model), np.float32))
    return saved(deeper, folder / "other.weights.h5")


def text(folder: Path) -> Path:
    (folder / "notes.weights.h5").write_text("no weights at all")
    return folder / "notes.weights.h5"


def cut_short(folder: Path) -> Path:
    whole = of_another_layer(folder)
    whole.write_bytes(whole.read_bytes()[:3000])
    return whole


def named_otherwise(folder: Path) -> Path:
    return Path(shutil.move(saved(trained("post-relu"), folder / "right.weights.h5"), folder / "right.h5"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of_another_layer, "attention/key/vars/0 is [24, 24], and the layer's is [20, 20]"),
        (without_biases, "it has no attention/key/vars/1, and 7 more are missing: it is another layer's"),
        (of_a_model_around_it, "it holds a model around the encoder, which is at 'layers/encoder_layer"),
        (of_a_layer_with_more, "it holds vars/0 and 0 more beside the layer's"),
        (text, "it is no HDF5 file, or is cut short"),
        (cut_short, "it is no HDF5 file, or is cut short"),
        (named_otherwise, "its name does not end in .weights.h5"),
    ],
)
def test_a_file_that_does_not_hold_the_layer_is_refused(
    conform: Callable, tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    path, target = make(tmp_path), tmp_path / "model.onnx"
    before = sorted(tmp_path.iterdir())
    ended = conform("export", "onnx_keras", "--layer", "post-relu", "--checkpoint", path, "--to", target)
    assert ended.status == 2, ended.stdout + ended.stderr
    assert f"--checkpoint {path}: does not hold post-relu: " in ended.stderr
    assert said in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_not_there_is_refused(conform: Callable, tmp_path: Path) -> None:
    ended = conform(
        "export", "onnx_keras", "--layer", "post-relu", "--checkpoint", "absent.weights.h5", "--to", "model.onnx"
    )
    assert ended.status == 2
    assert "'absent.weights.h5' does not exist" in ended.stderr
    assert not list(tmp_path.iterdir())
