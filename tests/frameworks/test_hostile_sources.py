"""`--against` what a file was not made from, or what cannot be held against anything: each ends with its own sentence,
with 1 where something is known to be wrong, and with 2 where nothing could be compared."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from products import of_a_release

SOURCE = '''
import torch
from torch import nn

D = 16


class Parallel(nn.Module):
    """Attention and a gated network side by side, their sum normed, which no layer of the specification is."""

    def __init__(self, kind="", seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.kind, self.times = kind, 0
        self.norm, self.qkv, self.o = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 64), nn.Linear(32, D)

    def layer(self, x, mask):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask[:, None, None], torch.finfo(x.dtype).min)
        a, b = self.up(x).chunk(2, -1)
        attended = self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.norm(x + attended + self.down(nn.functional.silu(a) * b))

    def forward(self, x, mask):
        if self.kind == "narrow" and x.dtype == torch.float64:
            raise RuntimeError("no kernel for Double")
        if self.kind == "short" and x.shape[1] > 10:
            raise ValueError("too long")
        if self.kind == "exits":
            raise SystemExit(3)
        y, self.times = self.layer(x, mask), self.times + 1
        answers = {
            "random": lambda: y + 1e-3 * torch.randn_like(y),
            "counts": lambda: y + 1e-3 * self.times,
            "counts-late": lambda: y + 1e-3 * (self.times > 3),
            "nan": lambda: y * float("nan"),
            "zero": lambda: y * 0,
            "pair": lambda: (y, y.flip(-1)),
            "exchanged": lambda: (y.flip(-1), y),
            "places": lambda: (y, y.argmax(-1)),
            "other-places": lambda: (y, y.argmax(-1) + 1),
            "complex": lambda: torch.complex(y, y),
            "summed": lambda: y.sum(-1),
            "nothing": lambda: None,
        }
        return answers[self.kind]() if self.kind in answers else y


class Three(Parallel):
    def forward(self, x, mask, more):
        return self.layer(x, mask) + more


class Classic(nn.Module):
    """A layer that the specification knows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm1, self.norm2, self.qkv = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 3 * D)
        self.o, self.up, self.down = nn.Linear(D, D), nn.Linear(D, 32), nn.Linear(32, D)

    def forward(self, x, mask):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~mask[:, None, None], torch.finfo(x.dtype).min)
        x = x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Around(nn.Module):
    """That layer, and what is done to its output."""

    def __init__(self, kind):
        super().__init__()
        self.inner, self.kind, self.times = Classic(), kind, 0

    def forward(self, x, mask):
        y, self.times = self.inner(x, mask), self.times + 1
        return y + 1e-3 * (torch.randn_like(y) if self.kind == "random" else self.times > 3)


def classic():
    return Classic().eval()


def classic_random():
    return Around("random").eval()


def classic_counts():
    return Around("late").eval()


def made(kind="", seed=0):
    return Parallel(kind, seed).eval()


def three():
    return Three().eval()


def other_weights():
    return made(seed=1)


def _of(kind):
    return lambda: made(kind)


for _kind in (
    "narrow short exits random counts counts-late nan zero pair exchanged places other-places complex summed nothing"
).split():
    globals()[_kind.replace("-", "_")] = _of(_kind)
'''
SIZES = ["batch", "sequence"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and the files that are made of them."""
    import runpy

    import onnx

    folder = tmp_path_factory.mktemp("hostile")
    (folder / "source.py").write_text(textwrap.dedent(SOURCE))
    sources = runpy.run_path(str(folder / "source.py"))
    for name, outputs in (("made", ["y"]), ("classic", ["y"]), ("pair", ["y", "z"]), ("places", ["y", "place"])):
        _export(sources[name](), folder / f"{name}.onnx", outputs, SIZES)
    _export(sources["made"](), folder / "alike.onnx", ["y"], ["n", "n"])
    right = onnx.load(folder / "made.onnx")
    _with_a_scale_of_0(right, folder / "scale.onnx")
    _in_integers(folder / "classic.onnx", folder / "int8.onnx")
    for times in (1, 2):
        _looped(onnx.load(folder / "made.onnx"), times, folder / f"loop-{times}.onnx")
    _save(sources["made"](), folder)
    return folder


def _export(module: object, path: Path, outputs: list[str], sizes: list[str]) -> None:
    import torch

    given = torch.randn(2, 7, 16), torch.ones(2, 7, dtype=torch.bool)
    axes = {name: dict(enumerate(sizes)) for name in ("x", "mask")}
    torch.onnx.export(
        module, given, path, dynamo=False, input_names=["x", "mask"], output_names=outputs, dynamic_axes=axes
    )  # type: ignore[arg-type]


def _in_integers(path: Path, to: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(path, to, reduce_range=True)


def _with_a_scale_of_0(model: object, path: Path) -> None:
    """Its last product is of what was quantised by 0."""
    import onnx
    from onnx import helper, numpy_helper

    graph = model.graph  # type: ignore[attr-defined]
    at = max(number for number, node in enumerate(graph.node) if node.op_type == "MatMul")
    product, scale = graph.node[at], ["scale", "zero"]
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "scale"))
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int8), "zero"))
    made = [
        helper.make_node("QuantizeLinear", [product.input[0], *scale], ["integers"]),
        helper.make_node("DequantizeLinear", ["integers", *scale], ["numbers"]),
    ]
    product.input[0] = "numbers"
    nodes = [*graph.node[:at], *made, *graph.node[at:]]
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    onnx.save(model, path)


def _looped(model: object, times: int, path: Path) -> None:
    """The layer, so many times, in the body of a Loop."""
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper

    inner = compose.add_prefix(model, "in_")  # type: ignore[arg-type]
    nodes = [
        helper.make_node("Identity", ["state"], ["in_x"]),
        helper.make_node("Identity", ["mask"], ["in_mask"]),
        *inner.graph.node,
        helper.make_node("Identity", ["goes"], ["on"]),
    ]
    number, truth = (
        helper.make_tensor_value_info(name, kind, [])
        for name, kind in (("i", TensorProto.INT64), ("goes", TensorProto.BOOL))
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("state", "in_y")]
    on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    body = helper.make_graph(nodes, "body", [number, truth, values[0]], [on, values[1]], [*inner.graph.initializer])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [*SIZES, 16]) for name in ("x", "y"))
    mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, SIZES)
    held = [numpy_helper.from_array(np.array(times), "times"), numpy_helper.from_array(np.array(True), "always")]
    loop = helper.make_node("Loop", ["times", "always", "x"], ["y"], body=body)
    graph = helper.make_graph([loop], "loops", [x, mask], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version), path)  # type: ignore[attr-defined]


def _save(module: object, folder: Path) -> None:
    """Inputs and outputs that are saved: right ones, of another shape, and none."""
    import torch

    x, mask = torch.randn(3, 9, 16, generator=torch.Generator().manual_seed(0)), torch.ones(3, 9, dtype=torch.bool)
    mask[1, 6:] = False
    with torch.no_grad():
        y = module(x, mask).numpy()  # type: ignore[operator]
    given = {"x": x.numpy(), "mask": mask.numpy()}
    for name, value in (("right", y), ("shape", y[:, :5]), ("nan", y * np.nan), ("ints", y.astype(np.int64))):
        np.savez(folder / f"{name}.npz", **given, y=value)
    np.savez(folder / "nan-given.npz", x=x.numpy() * np.nan, mask=mask.numpy(), y=y)
    np.savez(folder / "fewer.npz", x=x.numpy(), mask=mask.numpy()[:2], y=y)


def rows() -> Iterator[tuple[str, str, int, str]]:
    """File, source, exit status, and what is said."""
    yield "made", "other_weights", 1, "at every size and mask: other weights, or another computation"
    yield "made", "three", 2, "missing 1 required positional argument: 'more'"
    yield "made", "random", 2, "answers the same inputs otherwise the second time"
    yield "made", "counts", 2, "answers the same inputs otherwise the second time"
    yield "made", "counts_late", 2, "answers the same inputs otherwise after others"
    yield "classic", "classic_random", 2, "answers the same inputs otherwise the second time"
    yield "classic", "classic_counts", 2, "answers the same inputs otherwise after others"
    yield "int8", "classic_random", 2, "answers the same inputs otherwise the second time"
    yield "made", "nan", 2, "nothing to compare: the source has no finite number"
    yield "made", "zero", 1, "the output 'y' is not that of"
    yield "made", "pair", 0, "too, which is no output of the file"
    yield "pair", "made", 0, "; 'z' was compared with nothing: 0 errors"
    yield "pair", "exchanged", 1, "it is the source's '1': outputs are compared by name, else in order"
    yield "places", "places", 0, "has the outputs of its source"
    yield "places", "other_places", 1, "the output 'place' is not that of"
    yield "made", "complex", 2, "is of complex numbers, which no output of a file is compared with"
    yield "made", "summed", 1, "1 x 7: its shape is [1, 7, 16], and the source's [1, 7]"
    yield "made", "nothing", 2, "returns no tensor"
    yield "made", "exits", 2, "the worker exited with status 3"
    yield "made", "short", 0, "2 x 20, values far from zero: the source raises"
    yield "made", "narrow", 0, "the source was compared in float32"
    yield "alike", "made", 0, "20 x 20, padding on the right"
    yield "alike", "other_weights", 1, "the output 'y' is not that of"
    yield "scale", "made", 1, "the scale 'scale' of QuantizeLinear"
    yield "loop-1", "made", 0, "has the outputs of its source"
    yield "loop-2", "made", 1, "the output 'y' is not that of"
    yield "made", "right.npz", 0, "has the outputs of its source"
    yield "made", "shape.npz", 1, "its shape is [3, 9, 16], and the source's [3, 5, 16]"
    yield "made", "nan.npz", 2, "nothing to compare: the source has no finite number"
    yield "made", "ints.npz", 1, "the output 'y' is not that of"
    yield "made", "nan-given.npz", 1, "NaN in 432 of 432 places where the source has a number"
    yield "made", "fewer.npz", 2, "σ cannot be measured"


@pytest.mark.parametrize(
    ("file", "source", "status", "said"),
    [row if row[:2] in (("scale", "made"), ("made", "right.npz")) else of_a_release(*row) for row in rows()],
)
def test_each_source_ends_with_its_own_sentence(
    file: str, source: str, status: int, said: str, folder: Path, conform: Callable, tmp_path: Path
) -> None:
    named = f"{folder / source}" if source.endswith(".npz") else f"{folder / 'source.py'}:{source}"
    told = ("--runtime", "onnxruntime", "--out", tmp_path / "out")
    ended = conform("validate", folder / f"{file}.onnx", "--against", named, *told)
    assert ended.status == status, ended.stdout + ended.stderr
    assert said in ended.stdout + ended.stderr
