"""Files that are what their sources are, however weak or unusual those are; and faults that are none of theirs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from products import of_a_release

SOURCE = '''
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F


class Ids(nn.Module):
    """A layer of the specification behind an embedding, all in one module: no part of it can be called alone. It may
    compute the variance as E[x²] − E[x]², add ε outside the root, or hide scores with a number."""

    def __init__(self, fast=False, outside=False, fill=float("-inf"), activation=F.gelu):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Parameter(torch.randn(50, 16))
        self.qkv_w, self.o_w = nn.Parameter(torch.randn(48, 16) / 4), nn.Parameter(torch.randn(16, 16) / 4)
        self.up_w, self.down_w = nn.Parameter(torch.randn(40, 16) / 4), nn.Parameter(torch.randn(16, 40) / 4)
        for name, size in {"qkv_b": 48, "o_b": 16, "up_b": 40, "down_b": 16, "b1": 16, "b2": 16}.items():
            setattr(self, name, nn.Parameter(torch.randn(size) / 4))
        self.g1, self.g2 = nn.Parameter(1 + torch.rand(16)), nn.Parameter(1 + torch.rand(16))
        self.fast, self.outside, self.fill, self.activation = fast, outside, fill, activation

    def norm(self, x, gain, shift):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        if self.fast:
            variance = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)
        root = variance.sqrt() + 1e-5 if self.outside else (variance + 1e-5).sqrt()
        return (x - mean) / root * gain + shift

    def block(self, x, mask):
        h = F.linear(self.norm(x, self.g1, self.b1), self.qkv_w, self.qkv_b)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in h.chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(mask[:, None, None] == 0, self.fill)
        x = x + F.linear((s.softmax(-1) @ v).transpose(1, 2).flatten(2), self.o_w, self.o_b)
        h = self.activation(F.linear(self.norm(x, self.g2, self.b2), self.up_w, self.up_b))
        return x + F.linear(h, self.down_w, self.down_b)

    def forward(self, x, mask):
        return self.block(self.words[x], mask)


class Frames(Ids):
    """The same from values, which may be far from zero; some features of what it gives."""

    def forward(self, x, mask):
        return self.block(x, mask)[..., :5]


class Projected(Ids):
    """The same from values behind a map, which leaves little of an offset; some features of what it gives."""

    def __init__(self, **told):
        super().__init__(**told)
        self.first = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x, mask):
        return self.block(F.linear(x, self.first), mask)[..., :5]


def frames():
    return made(Frames)


def frames_fast():
    return made(Frames, "fast")


def projected():
    return made(Projected)


def projected_fast():
    return made(Projected, "fast")


def projected_outside():
    return made(Projected, "outside")


WEAK = {"fast": {"fast": True}, "outside": {"outside": True}, "low": {"fill": -1e9}, "half": {"fill": -65504.0},
        "all": {"fast": True, "outside": True, "fill": -65504.0}}


def made(kind, weakness=None, **other):
    return kind(**WEAK.get(weakness, {}), **other).eval()


def ids():
    return made(Ids)


def ids_fast():
    return made(Ids, "fast")


def ids_outside():
    return made(Ids, "outside")


def ids_low():
    return made(Ids, "low")


def ids_all():
    return made(Ids, "all")


def ids_half():
    return made(Ids, "half")


class Uneven(nn.Module):
    """Two heads of queries on one of keys and values, out of one map; and a part of no features put back."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.qkv, self.o = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(16, 16)

    def forward(self, x):
        none, rest = x.split([0, 16], -1)
        q, k, v = self.qkv(self.norm(torch.cat([rest, none], -1))).split([16, 8, 8], -1)
        s = q.unflatten(-1, (2, 8)).transpose(1, 2) @ k[:, None].transpose(-1, -2) / 8**0.5
        return x + self.o((s.softmax(-1) @ v[:, None]).transpose(1, 2).flatten(2))


class Placed(Uneven):
    """With a table of 40 positions: it takes no more."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 16)

    def forward(self, x):
        return super().forward(x + self.table(torch.arange(x.shape[1])))


class Past(nn.Module):
    """With keys and values of positions before: in an encoder of none, or of a prefix."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x, past):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([past[:, 0], k], 2), torch.cat([past[:, 1], v], 2)
        return x + self.o(((q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def uneven():
    return Uneven().eval()


def uneven_bf16():
    return uneven().bfloat16()


def past():
    return Past().eval()


def export(module, fed, name):
    axes = {each: {0: "batch", 1: "sequence"} for each in ("x", "mask") if each in fed} | {"past": {0: "batch"}}
    told = {"input_names": [*fed], "output_names": ["y"], "opset_version": 17, "dynamo": False}
    torch.onnx.export(module, tuple(fed.values()), f"{name}.onnx", dynamic_axes=axes, **told)


def changed(name, new, change):
    model = onnx.load(f"{name}.onnx")
    change(model.graph)
    onnx.save(model, f"{new}.onnx")


def exchanged(graph):
    split = [node for node in graph.node if node.op_type == "Split"][-1]
    split.output[1], split.output[2] = split.output[2], split.output[1]


def parts_of_more(graph):
    split = [node for node in graph.node if node.op_type == "Split"][-1]
    [parts] = [node for node in graph.node if node.output[0] == split.input[1]]
    parts.attribute[0].t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(parts.attribute[0].t) + [0, 0, 1]))


def parts_stated(graph):
    split = [node for node in graph.node if node.op_type == "Split"][-1]
    del split.input[1:]
    split.attribute.append(onnx.helper.make_attribute("num_outputs", 2))


def no_rows(graph):
    [weight] = [each for each in graph.initializer if list(each.dims) == [16, 16]]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[:, :0], weight.name))


def without_items(graph):
    for each in (*graph.input, *graph.output):
        each.type.tensor_type.shape.dim[0].dim_value = 0


if __name__ == "__main__":
    mask = torch.ones(2, 5, dtype=torch.int64)
    values = {"x": torch.randn(2, 5, 16), "mask": mask}
    export(made(Ids, activation=torch.tanh), {"x": torch.zeros_like(mask), "mask": mask}, "ids_tanh")
    export(made(Projected, "fast", activation=torch.tanh), values, "projected_tanh")
    export(projected_fast(), values, "projected_fast")
    export(frames_fast(), values, "frames_fast")
    export(projected_outside(), values, "projected_outside")
    for weakness in WEAK:
        export(made(Ids, weakness), {"x": torch.zeros_like(mask), "mask": mask}, f"ids_{weakness}")
    x = torch.randn(2, 5, 16)
    export(uneven(), {"x": x}, "uneven")
    export(Placed().eval(), {"x": x}, "placed")
    export(uneven_bf16(), {"x": x.bfloat16()}, "uneven_bf16")
    changed("uneven", "exchanged", exchanged)
    changed("uneven", "parts_of_more", parts_of_more)
    changed("uneven", "without_items", without_items)
    changed("uneven", "parts_stated", parts_stated)
    changed("uneven", "no_rows", no_rows)
    newer = onnx.load("uneven.onnx")
    newer.ir_version = 99
    onnx.save(newer, "newer.onnx")
    for count in (0, 3):
        export(past(), {"x": x, "past": torch.randn(2, 2, 2, count, 8)}, f"past{count}")
'''


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    return exported(SOURCE)


def severe(result: dict[str, Any], severity: str) -> list[str]:
    return [each["message"] for each in result["findings"] if each["severity"] == severity]


@pytest.mark.parametrize(
    "source",
    ["ids_all", *(of_a_release(each) for each in ("ids_fast", "ids_outside", "ids_low", "ids_half", "frames_fast"))],
)
def test_a_weakness_of_a_source_that_is_not_opened_is_no_fault_of_its_file(against: Callable, source: str) -> None:
    status, result, _ = against(f"{source}.onnx", source)
    assert (status, severe(result, "error")) == (0, [])
    assert result["against"] is None, "its stages cannot be read"
    assert result["whole"]["agrees"]


@pytest.mark.parametrize("source", ["projected_fast", *map(of_a_release, ("projected_outside", "ids_fast"))])
def test_a_weakness_of_a_source_with_the_same_steps_is_no_fault_of_its_file(against: Callable, source: str) -> None:
    """Behind a map no input shows it; and each runtime loses other digits by it."""
    status, result, _ = against(f"{source}.onnx", source, "--runtime", "reference")
    assert (status, severe(result, "error")) == (0, [])
    assert {each["kind"] for each in result["findings"] if each["severity"] == "warning"} >= {"out-of-line"}


@pytest.mark.parametrize(
    ("file", "source"),
    [("frames_fast", "frames"), ("projected_fast", "projected"), of_a_release("projected_tanh", "projected_fast"),
     of_a_release("ids_tanh", "ids"), of_a_release("ids_outside", "ids")],
)  # fmt: skip
def test_a_weakness_of_the_file_alone_is_its_fault(against: Callable, file: str, source: str) -> None:
    """E[x²] − E[x]² is the variance on ordinary inputs: nothing that the source was asked shows which one it has."""
    status, result, _ = against(f"{file}.onnx", source)
    assert (status, result["conclusion"]) == (1, "wrong")
    assert severe(result, "error")


@pytest.mark.parametrize(("file", "source"), [("past0", "past"), of_a_release("past3", "past"), ("uneven", "uneven")])
def test_parts_of_other_sizes_are_no_fault(against: Callable, file: str, source: str) -> None:
    """An input of no items was an error: a mask that hides nothing."""
    status, result, _ = against(f"{file}.onnx", source)
    assert (status, severe(result, "error"), result["whole"]["agrees"]) == (0, [], True)


def test_a_format_that_a_runtime_has_no_operators_for_is_that_runtimes_row(against: Callable) -> None:
    """ONNX Runtime multiplies no matrices of bfloat16, and the reference does."""
    status, result, _ = against("uneven_bf16.onnx", "uneven_bf16", "--runtime", "reference")
    assert (status, severe(result, "error"), result["whole"]["agrees"]) == (0, [], True)
    assert "runtime-lacks-operators" in {each["kind"] for each in result["findings"]}


def test_wrong_parts_are_a_fault(against: Callable) -> None:
    status, result, _ = against("exchanged.onnx", "uneven")
    assert (status, result["conclusion"]) == (1, "wrong")


def test_a_case_in_which_a_file_raises_is_none_in_which_it_is_right(against: Callable) -> None:
    status, result, _ = against("placed.onnx", "uneven")
    apart = [each for each in result["findings"] if each["kind"] == "output-differs"]
    assert (status, len(apart)) == (1, 2), "other numbers, and none of 300 positions"
    assert not [each["hint"] for each in apart if "right in" in each["hint"]]


def test_a_file_that_can_be_asked_nothing_says_why(against: Callable) -> None:
    """Of an input of no items every answer was the source's, and a runtime that refuses others was called wrong."""
    status, result, _ = against("without_items.onnx", "uneven")
    assert (status, result["conclusion"]) == (2, "not_judged")
    assert any("'x' float32 [0, sequence, 16] has no items" in each for each in severe(result, "error"))


@pytest.mark.parametrize(
    ("file", "said"), [("parts_of_more", "(33)"), ("parts_stated", "states num_outputs 2"), ("no_rows", "runs at no")]
)
def test_a_file_that_nothing_can_run_is_wrong(against: Callable, file: str, said: str) -> None:
    """Nothing of it can be judged, and yet what it says of itself cannot be."""
    status, result, _ = against(f"{file}.onnx", "uneven")
    assert (status, result["conclusion"]) == (1, "wrong")
    assert any(said in each for each in severe(result, "error")), severe(result, "error")


def test_a_file_that_is_newer_than_the_checker_is_not_accused(against: Callable) -> None:
    status, result, _ = against("newer.onnx", "uneven")
    assert (status, result["conclusion"]) == (2, "not_judged"), severe(result, "error")
