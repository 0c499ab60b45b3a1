"""What a file is, said early: one without attention, and encoders that stand between what is none."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from benchmarks.onnx_files.planted import Planted
from encoder_conformance.readers.onnx_file.calling import CalledFile
from encoder_conformance.readers.onnx_file.graph import execution, size
from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.readers.onnx_file.interface import probe_runs

D, H, F = 32, 4, 48


class Convolutions(nn.Module):
    """Two of them, and a classifier with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.other(self.one(images).relu()).relu().mean((2, 3))).softmax(-1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made, self.head = nn.GRU(D, D, batch_first=True), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.made(x)[0])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(D, D) for _ in range(4))
        self.hidden, self.back = nn.Linear(D, F), nn.Linear(F, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        B, S, _ = x.shape
        normed = self.norm1(x)
        q, k, v = (each(normed).view(B, S, H, D // H).transpose(1, 2) for each in (self.query, self.key, self.value))
        weights = (q @ k.transpose(-1, -2) / (D // H) ** 0.5).softmax(-1)
        x = x + self.output((weights @ v).transpose(1, 2).reshape(B, S, D))
        return x + self.fed(self.norm2(x))

    def fed(self, x: Tensor) -> Tensor:
        return self.back(nn.functional.gelu(self.hidden(x)))


class Pointwise(Layer):
    """Its network is of convolutions of kernel 1, over [batch, channels, sequence]."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.back = nn.Conv1d(D, F, 1), nn.Conv1d(F, D, 1)  # type: ignore[assignment]

    def fed(self, x: Tensor) -> Tensor:
        return self.back(self.activated(self.hidden(x.transpose(1, 2)))).transpose(1, 2)

    def activated(self, hidden: Tensor) -> Tensor:
        return nn.functional.gelu(hidden)


class OfMish(Pointwise):
    def activated(self, hidden: Tensor) -> Tensor:
        return nn.functional.mish(hidden)


class Between(nn.Module):
    """Two layers and their final norm between convolutions, as of speech and of lines of text; pooled or not."""

    def __init__(self, epsilon: float = 1e-5, *, pooled: bool = False) -> None:
        super().__init__()
        self.before, self.after = nn.Conv1d(8, D, 3, stride=2, padding=1), nn.Conv1d(D, 5, 3, padding=1)
        self.layers, self.norm = nn.ModuleList([Layer(), Layer()]), nn.LayerNorm(D, eps=epsilon)
        self.head, self.pooled = nn.Sequential(nn.Linear(D, 6), nn.LayerNorm(6)), pooled

    def forward(self, frames: Tensor) -> Tensor:
        x = nn.functional.gelu(self.before(frames)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x.mean(1)) if self.pooled else self.after(x.transpose(1, 2))


class Behind(nn.Module):
    """A layer behind a map of x from another width, or what adds positions to it; `norm`: after that."""

    def __init__(self, width: int, *, norm: bool = False) -> None:
        super().__init__()
        self.before = nn.Linear(width, D) if width != D else nn.Identity()
        self.positions, self.norm = nn.Embedding(40, D), nn.LayerNorm(D) if norm else nn.Identity()
        self.layer = Layer()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.norm(self.before(x) + self.positions(torch.arange(x.shape[1]))))


class Rounded(Layer):
    """What is given is rounded to bfloat16, which ONNX Runtime gives to no array."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(torch.bfloat16).to(x.dtype))


class Lost(Layer):
    """0 times what a format does not hold."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + (x < -1e9) * torch.tensor(torch.inf))


def inspected(
    module: nn.Module, path: Path, given: tuple[int, ...], axes: dict[int, str], opset: int = 17
) -> Inspection:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    torch.onnx.export(
        module.eval(), (torch.randn(given),), path, opset_version=opset, dynamo=False, input_names=["frames"],
        output_names=["y"], dynamic_axes={"frames": axes},
    )  # fmt: skip
    return inspect(path, None)


def errors(seen: Inspection) -> list[str]:
    return [each.message for each in seen.findings.errors()]


@pytest.mark.parametrize(
    ("module", "given", "said"),
    [
        pytest.param(Convolutions(), (2, 3, 16, 16), "it is made of 2 Conv", id="convolutions"),
        pytest.param(Recurrent(), (2, 7, D), "it is made of 1 GRU", id="recurrent"),
    ],
)
def test_what_has_no_attention_is_no_encoder(
    module: nn.Module, given: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    seen = inspected(module, tmp_path / "model.onnx", given, {0: "batch"})
    [message] = errors(seen)
    assert message.startswith("it is no Transformer encoder: there is no attention in it")
    assert message.endswith(said)
    assert seen.semantics is None  # it was not run


@pytest.mark.parametrize("opset", [17, pytest.param(14, marks=pytest.mark.release, id="norms-written-out")])
def test_an_encoder_between_convolutions_is_found(tmp_path: Path, opset: int) -> None:
    seen = inspected(Between(), tmp_path / "model.onnx", (2, 8, 14), {0: "batch", 2: "frames"}, opset)
    assert errors(seen) == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    assert (seen.inferred.layer.stack.layers, seen.inferred.layer.stack.final_norm) == (2, True)


def test_sizes_that_layers_compute_of_the_frames_are_those_of_x(tmp_path: Path) -> None:
    """Behind a stride of 2 they are half of the frames': dynamo's exporter writes that into each layer."""
    dims = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        Between().eval(), (torch.randn(2, 8, 14),), tmp_path / "model.onnx", opset_version=18, dynamo=True,
        input_names=["frames"], output_names=["y"], dynamic_shapes=(dims,), verbose=False,
    )  # fmt: skip
    seen = inspect(tmp_path / "model.onnx", None)
    assert errors(seen) == []
    assert seen.is_read
    assert seen.baked == {}


@pytest.mark.parametrize(
    ("module", "width", "opset"),
    [
        (Behind(D, norm=True), D, 17),
        pytest.param(Behind(12), 12, 17, marks=pytest.mark.release),
        pytest.param(Behind(12, norm=True), 12, 14, marks=pytest.mark.release, id="norms-written-out"),
    ],
)
def test_layers_behind_what_is_made_of_an_input_are_found(
    module: nn.Module, width: int, opset: int, tmp_path: Path
) -> None:
    seen = inspected(module, tmp_path / "model.onnx", (2, 7, width), {0: "batch", 1: "frames"}, opset)
    assert errors(seen) == []
    assert seen.is_read
    assert seen.cut is not None
    assert seen.cut.inputs == ("frames",)
    assert seen.unjudged == seen.cut.before, "and that is said last"


def test_a_layer_that_begins_with_x_is_read_from_x_on(tmp_path: Path) -> None:
    seen = inspected(Layer(), tmp_path / "model.onnx", (2, 7, D), {0: "batch", 1: "frames"})
    assert seen.is_read
    assert seen.cut is None


def test_a_convolution_of_kernel_1_is_a_linear_map(tmp_path: Path) -> None:
    seen = inspected(Pointwise(), tmp_path / "model.onnx", (2, 7, D), {0: "batch", 1: "frames"})
    assert errors(seen) == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    assert (seen.inferred.layer.feed_forward.activation, seen.inferred.layer.feed_forward.d_ff) == ("gelu", F)


def test_an_activation_that_no_layer_has_is_named(tmp_path: Path) -> None:
    seen = inspected(OfMish(), tmp_path / "model.onnx", (2, 7, D), {0: "batch", 1: "frames"})
    [message] = errors(seen)
    assert "its activation is none that a layer may have" in message
    assert "x * tanh(softplus(x))" in message


def test_a_file_that_gives_no_number_is_said_to_and_at_which_node(tmp_path: Path) -> None:
    [message] = errors(inspected(Lost(), tmp_path / "model.onnx", (2, 7, D), {0: "batch", 1: "frames"}))
    assert message == "its output is NaN or infinite, whatever it is given; Mul '/Mul' is the first to give none"


def test_values_in_bfloat16_are_looked_at(tmp_path: Path) -> None:
    seen = inspected(Rounded(), tmp_path / "model.onnx", (2, 7, D), {0: "batch", 1: "frames"})
    assert not any("cannot be looked at" in message for message in errors(seen))
    assert seen.is_read


def test_a_final_norm_of_its_own_is_left_aside(tmp_path: Path) -> None:
    seen = inspected(Between(1e-6), tmp_path / "model.onnx", (2, 8, 14), {0: "batch", 2: "frames"})
    assert errors(seen) == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    assert (seen.inferred.layer.stack.layers, seen.inferred.layer.stack.final_norm) == (2, False)
    notes = [each.message for each in seen.findings.found if each.severity == "note" and each.phase == "layer"]
    assert any("the final norm is layer_norm with epsilon 1e-06" in note and "not judged" in note for note in notes)


def test_a_long_sequence_that_is_fixed_is_looked_at_in_some_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = []
    changes = probe_runs.ProbeRun._changes
    monkeypatch.setattr(
        probe_runs.ProbeRun, "_changes", lambda self, *at: (changed.append(at[1:]), changes(self, *at))[1]
    )
    seen = inspected(Between(pooled=True), tmp_path / "model.onnx", (2, 8, 160), {0: "batch"})
    assert errors(seen) == []
    assert seen.semantics is not None
    assert seen.semantics.S == 80
    assert {0, 79} <= {place for axis, place in changed if axis == 1}
    assert len(changed) < 20


def test_a_run_of_the_outputs_holds_no_other_value_and_a_trace_is_of_arrays_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime keeps room for all outputs of a session, for as long as it or any of them is held."""
    inspected(Between(), tmp_path / "model.onnx", (2, 8, 14), {0: "batch", 2: "frames"})
    model, feeds = onnx.load(tmp_path / "model.onnx"), {"frames": np.ones((2, 8, 14), np.float32)}
    few = execution.ModelRunner(model).trace(feeds)
    monkeypatch.setattr(execution, "LARGE", model.ByteSize())
    runner = execution.ModelRunner(model)
    assert runner.session is not None
    assert runner.session.outputs == ["y"]
    values = runner.trace(feeds)
    assert sum(value.nbytes for value in values.values()) > execution.LARGE
    assert all(value.flags.owndata for value in values.values())
    assert all(np.array_equal(values[name], few[name]) for name in few)
    assert np.array_equal(runner.run(feeds)["y"], values["y"])


def test_a_large_model_gives_the_same_with_its_weights_in_a_file_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspected(Between(), tmp_path / "model.onnx", (2, 8, 14), {0: "batch", 2: "frames"})
    model, feeds = onnx.load(tmp_path / "model.onnx"), {"frames": np.ones((2, 8, 14), np.float32)}
    before, due = model.SerializeToString(), execution.ModelRunner(model).trace(feeds)
    monkeypatch.setattr(size, "LARGE", 0)
    values = execution.ModelRunner(model).trace(feeds)
    assert values.keys() == due.keys()
    assert all(np.array_equal(values[name], due[name]) for name in due)
    assert model.SerializeToString() == before


@pytest.mark.release
def test_weights_that_float16_loses_are_hidden_by_nothing(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    path = Planted("scale-missing", "float16", "post", "traced").make(tmp_path / "wrong")
    seen = inspect(path, None)
    assert [message for message in errors(seen) if "pattern of its own" in message] == []
    assert seen.inferred is not None


@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (1, 7), (3, 5)])
def test_elements_of_a_table_longer_than_64_are_gathered_in_float64(batch: int, sequence: int, tmp_path: Path) -> None:
    """Token types, as the exporter of PyTorch makes them of a buffer: ONNX's reference raises beyond one position."""
    table = np.arange(batch * 512.0).reshape(batch, 512)
    ids = np.random.default_rng(1).integers(0, 512, (batch, sequence))
    gather = onnx.helper.make_node("GatherElements", ["table", "ids"], ["y"], axis=-1)
    takes = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [batch, sequence])
    gives = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, sequence])
    held = onnx.numpy_helper.from_array(table.astype(np.float32), "table")
    graph = onnx.helper.make_graph([gather], "one", [takes], [gives], [held])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), tmp_path / "one.onnx")
    asked = {"precision": "float64", "seed": None, "roundoff": 0.0}
    found = CalledFile(tmp_path / "one.onnx", open=lambda _: pytest.fail("not as it is")).outputs(asked, {"ids": ids})
    assert np.array_equal(found["y"], np.take_along_axis(table, ids, -1))
