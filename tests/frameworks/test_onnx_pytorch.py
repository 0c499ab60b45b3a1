"""The ONNX implementation: exported once a layer, with free batch and sequence, and no file left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance import Masks, RunRequest
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.platform.paths import IMPLS
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from encoder_conformance.impls.onnx_pytorch.adapter import OnnxPyTorch

    adapter = OnnxPyTorch()
    adapter.choices = read_implementation(IMPLS / "onnx_pytorch").chosen
    adapter.start("cpu", 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield adapter


@pytest.mark.release
def test_one_export_serves_every_parameter_set_and_shape(
    started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exports = []
    export = started.export
    monkeypatch.setattr(started, "export", lambda *given, **how: exports.append(given) or export(*given, **how))
    monkeypatch.chdir(tmp_path)
    layer = load().layers["post-relu"]
    answers = []
    for exponents in ({}, {"attention.query.weight": 3}):
        drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, exponents).items()}
        held = started.build(layer.model_dump(mode="json"), drawn, "float32")
        assert all(np.array_equal(held[name], value) for name, value in drawn.items())
        for batch, sequence in ((1, 1), (3, 1), (1, 7), (4, 33)):
            x = np.linspace(-1, 1, batch * sequence * layer.d_model, dtype=np.float32).reshape(batch, sequence, -1)
            answers.append(started.output(x, Masks(None, None), RunRequest()))
            assert answers[-1].shape == x.shape
    assert len(exports) == 1
    assert not np.array_equal(answers[3], answers[7]), "the second set of parameters is really in use"
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_the_deployed_model_has_free_axes_and_one_output(started: Any) -> None:
    layer = load().layers["post-relu"]
    drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    started.build(layer.model_dump(mode="json"), drawn, "float32")
    started.output(np.ones((1, 2, layer.d_model), np.float32), Masks(None, None), RunRequest())
    deployed = started.sessions["deployed", False].session
    inputs = {i.name: i.shape for i in deployed.get_inputs()}
    [output] = deployed.get_outputs()
    batch, sequence, d_model = inputs["x"]
    assert isinstance(batch, str)
    assert isinstance(sequence, str)
    assert d_model == layer.d_model
    assert inputs["mask"] == [batch, layer.attention.num_heads, sequence, sequence]
    assert (output.name, output.shape) == ("output", [batch, sequence, d_model])


@pytest.mark.release
def test_a_layer_that_is_built_again_has_its_new_parameters_and_is_not_exported_again(
    started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nothing can be kept on disk, too: a run asks the layers in turns."""
    (tmp_path / "caches").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    exports = []
    export = started.export
    monkeypatch.setattr(started, "export", lambda *given, **how: exports.append(given) or export(*given, **how))
    answers = []
    for name, exponents in (
        ("post-relu", {}),
        ("pre-rms-silu", {}),
        ("post-relu", {"norm1.gain": 3}),
        ("post-relu", {}),
    ):
        layer = load().layers[name]
        drawn = {name: value.astype(np.float64) for name, value in layer_parameters(layer, exponents).items()}
        held = started.build(layer.model_dump(mode="json"), drawn, "float64")
        assert all(np.array_equal(held[name], value) for name, value in drawn.items())
        x = np.linspace(-1, 1, 6 * layer.d_model).reshape(2, 3, -1)
        answers.append(started.output(x, Masks(None, None), RunRequest()))
    assert len(exports) == 2
    assert not np.array_equal(answers[0], answers[2])
    assert np.array_equal(answers[0], answers[3])


def test_the_exports_of_a_process_share_one_registry(started: Any) -> None:
    """It is PyTorch's own affair where that is. Where it has moved, exports take a fourth longer and this fails."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from encoder_conformance.impls.onnx_pytorch.encoder import once_a_process

    once_a_process()
    assert ONNXRegistry().from_torchlib(opset_version=18) is ONNXRegistry().from_torchlib(opset_version=18)
    assert ONNXRegistry().from_torchlib(opset_version=20) is not ONNXRegistry().from_torchlib(opset_version=18)


@pytest.mark.release
def test_an_export_is_the_same_with_the_cache_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte. Where PyTorch has renamed the setting, the cache is in use again and this fails."""
    from torch._dynamo import config

    from encoder_conformance.impls.onnx_pytorch.encoder import export, once_a_process

    layer = load().layers["post-relu"]
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    once_a_process()
    assert config.fake_tensor_cache_enabled is False
    exports = []
    for enabled in (False, True):
        monkeypatch.setattr(config, "fake_tensor_cache_enabled", enabled)
        model = export(layer.model_dump(mode="json"), parameters, "float32", 18, biased=True)
        exports.append(model.SerializeToString(deterministic=True))
    assert exports[0] == exports[1]


@pytest.mark.release
@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("onnx_pytorch", "OnnxPyTorch", 1) > 0.8
    assert busiest_thread("onnx_pytorch", "OnnxPyTorch", 2) < 0.7


@pytest.mark.release
def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("onnx_pytorch")


@pytest.mark.release
def test_every_node_that_is_timed_leads_to_one_stage(started: Any) -> None:
    from encoder_conformance.impls.bases.onnx_model.timing import leading_to

    layer = load().layers["pre-gelu"]
    drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    started.build(layer.model_dump(mode="json"), drawn, "float32")
    graph = started.model(biased=False).graph
    stages = leading_to(graph)
    assert stages.keys() == {node.name for node in graph.node}
    for node in graph.node:
        if node.op_type in ("Softmax", "Erf", "LayerNormalization"):
            stage = {"Softmax": "attention_weights", "Erf": "ffn_activation"}.get(node.op_type, node.output[0])
            assert stages[node.name] == stage
    times = started.profile(np.ones((2, 3, layer.d_model), np.float32), Masks(None, None), RunRequest(), 4)
    assert all(seconds.shape == (4,) for seconds in times.values())
    assert all(times[name].sum() > 0 for name in ("norm1", "ffn_hidden", "attention_weights"))


@pytest.mark.release
def test_a_state_dict_becomes_a_file_with_its_numbers(conform: Callable, tmp_path: Path) -> None:
    import onnx
    import torch
    from onnx import numpy_helper

    from encoder_conformance.impls.pytorch.building import encoder_of

    torch.manual_seed(0)
    encoder = encoder_of(load().layers["post-relu"].model_dump(mode="json"))
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)
    saved, target = tmp_path / "trained.pt", tmp_path / "model.onnx"
    torch.save(encoder.state_dict(), saved)
    ended = conform("export", "onnx_pytorch", "--layer", "post-relu", "--checkpoint", saved, "--to", target)
    assert ended.status == 0, ended.stderr
    model = onnx.load(target)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.array_equal(held["attention.query.weight"], encoder.attention.W_q.weight.detach().numpy().T)
    assert np.array_equal(held["norm2.gain"], encoder.norm2.weight.detach().numpy())
    assert [given.name for given in model.graph.input] == ["x", "mask"]
    assert [given.name for given in model.graph.output] == ["output"]
    judged = conform("validate", target, "--layer", "post-relu", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    assert judged.status == 0, judged.stdout


@pytest.mark.release
def test_what_is_no_state_dict_of_the_layer_is_refused(conform: Callable, tmp_path: Path) -> None:
    import torch

    arguments = "export", "onnx_pytorch", "--layer", "post-relu", "--checkpoint", "other.pt", "--to", "model.onnx"
    for saved, said in (
        (torch.ones(3), "it is no state dict"),
        ({"norm1.weight": torch.ones(20)}, "attention.W_k.bias"),
        ({"norm1.weight": torch.ones(3)}, "norm1.weight is [3], and the layer's is [20]"),
    ):
        torch.save(saved, tmp_path / "other.pt")
        ended = conform(*arguments)
        assert ended.status == 2
        assert "--checkpoint other.pt: does not hold post-relu" in ended.stderr
        assert said in ended.stderr, ended.stderr
        assert not (tmp_path / "model.onnx").exists()


@pytest.mark.release
def test_a_new_folder_passes_smoke_once_its_blanks_are_filled(conform: Callable, filled: Callable) -> None:
    ended = conform("smoke", filled("onnx"))
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.release
def test_a_wrong_epsilon_fails_within_the_first_ten_checks(wrong_epsilon: Callable[..., None]) -> None:
    wrong_epsilon("onnx_pytorch", "OnnxPyTorch")
