"""A file against its source as two black boxes: whatever layer it is, and whatever stands before and after it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from products import of_a_release

from encoder_conformance.commands.validate.against_saved import saved
from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.description import Port, WholeFile, WholeInput

MASKED = {"attention_mask": np.ones((2, 3), np.int64)}
SOURCE = '''
import numpy
import onnx
import torch
from torch import nn
from torch.nn import functional as F


class Parallel(nn.Module):
    """Attention and a gated network side by side, their sum normed, which no layer of the specification is."""

    def __init__(self, offset=0, times=1.0, gate=F.silu, noisy=False, masked=True):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(40, 16)
        self.norm, self.qkv, self.o = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(32, 16)
        self.offset, self.times, self.gate, self.noisy, self.masked = offset, times, gate, noisy, masked

    def forward(self, ids, attention_mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]) + self.offset)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        s = self.times * q @ k.transpose(-1, -2) / 8**0.5
        hidden = (attention_mask if self.masked else attention_mask + 1)[:, None, None] == 0
        s = s.masked_fill(hidden, torch.finfo(s.dtype).min)
        a, b = self.up(x).chunk(2, -1)
        y = self.norm(x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)) + self.down(self.gate(a) * b))
        return y + 1e-3 * torch.randn_like(y) if self.noisy else (y, y[:, 0])


def right():
    return Parallel().eval()


def shifted():
    return Parallel(offset=1).eval()


def gelu():
    return Parallel(gate=F.gelu).eval()


def unmasked():
    return Parallel(masked=False).eval()


def noisy():
    return Parallel(noisy=True).eval()


class Optional(Parallel):
    """The mask may be left out, and another argument that is named as one hides nothing."""

    def forward(self, ids, attention_mask=None, output_mask=None):
        y, first = super().forward(ids, torch.ones_like(ids) if attention_mask is None else attention_mask)
        return y if output_mask is None else 2 * y, first


def optional():
    return Optional().eval()


class Known(nn.Module):
    """A layer of the specification, post-norm, whose mask may be left out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.o, self.up, self.down = (nn.Linear(*each) for each in ((16, 48), (16, 16), (16, 40), (40, 16)))
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x, attention_mask=None):
        mask = torch.ones(x.shape[:2], dtype=torch.int64) if attention_mask is None else attention_mask
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(mask[:, None, None] == 0, -1e9)
        x = self.norm1(x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.relu(self.up(x))))


def known():
    return Known().eval()


class Decoder(Known):
    """From token ids, and no position sees a later one."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(400, 16)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        later = torch.ones(ids.shape[1], ids.shape[1]).tril() == 0
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(later, -1e9)
        x = self.norm1(x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.relu(self.up(x))))


def decoder():
    return Decoder().eval()


class PaddedDecoder(Decoder):
    """What is hidden and what is later are filled alike; or what is hidden less, or not at all, as it may be `added`:
    where no key is left they are uniform over all, or over what is hidden."""

    def __init__(self, added=None):
        super().__init__()
        self.added = added

    def forward(self, ids, attention_mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        later = torch.ones(ids.shape[1], ids.shape[1]).tril() == 0
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(later, -1e9)
        if self.added is None:
            s = s.masked_fill(attention_mask[:, None, None] == 0, -1e9)
        else:
            s = s + (1 - attention_mask[:, None, None].to(s.dtype)) * self.added
        x = self.norm1(x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.relu(self.up(x))))


def filled():
    return PaddedDecoder().eval()


def added():
    return PaddedDecoder(-1e4).eval()


def barely_added():
    return PaddedDecoder(-1.0).eval()


class Needing(Known):
    def forward(self, x, attention_mask):
        return super().forward(x, attention_mask)


def needing():
    return Needing().eval()


class FastNorm(nn.Module):
    """The variance as E[x²] − E[x]², as Flax has it by default; of which little is left far from zero."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(1 + torch.rand(16)), nn.Parameter(torch.rand(16))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.weight + self.bias


class Fast(Known):
    def __init__(self, norm=FastNorm):
        super().__init__()
        self.norm1, self.norm2 = FastNorm(), FastNorm()
        if norm is not FastNorm:
            for name in ("norm1", "norm2"):
                exact = norm(16)
                exact.load_state_dict(getattr(self, name).state_dict())
                setattr(self, name, exact)


def fast():
    return Fast().eval()


def exact():
    return Fast(nn.LayerNorm).eval()


class Latents(nn.Module):
    """Attention of a few of its own to x: what it gives has not the shape of x."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.own, self.key, self.value = nn.Parameter(torch.randn(4, 16)), nn.Linear(12, 16), nn.Linear(12, 16)

    def forward(self, x):
        return (self.own @ self.key(x).transpose(1, 2) / 4).softmax(-1) @ self.value(x)


def latents():
    return Latents().eval()


def other_inputs():
    return nn.Linear(16, 16)


if __name__ == "__main__":
    ids, mask = torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "sequence"} for name in ("ids", "attention_mask", "y")}
    told = {"input_names": ["ids", "attention_mask"], "output_names": ["y", "first"], "dynamic_axes": axes}
    torch.onnx.export(right(), (ids, mask), "right.onnx", dynamo=False, **told)
    torch.onnx.export(shifted(), (ids, mask), "shifted.onnx", dynamo=False, **told)
    torch.onnx.export(unmasked(), (ids, mask), "unmasked.onnx", dynamo=False, **told)
    told["output_names"] = ["y"]
    torch.onnx.export(added(), (ids, mask), "added.onnx", dynamo=False, **told)
    told["output_names"] = ["y", "first"]
    told["input_names"] = ["ids"]
    causal = {**told, "output_names": ["y"], "dynamic_axes": {"ids": axes["ids"], "y": axes["y"]}}
    torch.onnx.export(decoder(), (ids,), "decoder.onnx", dynamo=False, **causal)
    torch.onnx.export(optional(), (ids,), "maskless.onnx", dynamo=False, **told)
    axes = {"x": {0: "batch", 1: "sequence"}}
    told = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(latents(), (torch.randn(2, 5, 12),), "latents.onnx", dynamo=False, **told)
    axes["y"] = axes["x"]
    torch.onnx.export(known(), (torch.randn(2, 5, 16),), "known.onnx", dynamo=False, **told)
    torch.onnx.export(fast(), (torch.randn(2, 5, 16),), "fast.onnx", dynamo=False, **told)
    faulty = onnx.load("fast.onnx")
    for each in (a for node in faulty.graph.node if node.op_type == "Constant" for a in node.attribute):
        value = onnx.numpy_helper.to_array(each.t)
        if value.size == 1 and abs(value.item() - 8**0.5) < 1e-6:  # the scores' divisor is the root of d_model
            each.t.CopyFrom(onnx.numpy_helper.from_array(numpy.full_like(value, 4.0)))
    onnx.save(faulty, "fast_scaled.onnx")
    ids, mask = torch.randint(0, 50, (3, 9)), torch.ones(3, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    for name, made in (("right", right), ("shifted", shifted), ("gelu", gelu)):
        with torch.no_grad():
            y, first = made()(ids, mask)
        numpy.savez(f"{name}.npz", ids=ids, attention_mask=mask, y=y, first=first)
'''


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    """A folder with the source and two files that were made from it."""
    return exported(SOURCE)


def test_a_file_of_no_known_layer_has_the_outputs_of_its_source(against: Callable) -> None:
    status, found, said = against("right.onnx", "right")
    assert (status, found["conclusion"]) == (0, "same_outputs"), said
    assert found["whole"]["rms"] < 3
    assert found["whole"]["outputs"] == {"y": "0", "first": "1"}
    assert {each["question"]: each["answer"] for each in found["covered"]}["padding"] == "yes"
    assert "no layer was judged in it" in said


@pytest.mark.parametrize("source", ["shifted", pytest.param("gelu", marks=pytest.mark.release)])
def test_what_stands_before_a_layer_or_in_it_is_compared(against: Callable, source: str) -> None:
    status, found, said = against("right.onnx", source)
    assert (status, found["conclusion"]) == (1, "wrong"), said
    assert found["whole"]["rms"] > 1e4
    assert any(each["phase"] == "whole" and each["severity"] == "error" for each in found["findings"])
    made_by = {
        "shifted": "from Gather '/places/Gather' ('places.weight', as parameter 'places.weight' has it",
        "gelu": "from ",
    }
    assert any(each["message"].startswith(made_by[source]) for each in found["findings"]), said


@pytest.mark.parametrize(
    ("file", "source", "unread_by"),
    [("right.onnx", "unmasked", "source"), of_a_release("unmasked.onnx", "right", "file")],
)
def test_a_mask_that_one_of_the_two_does_not_read_is_named(
    against: Callable, file: str, source: str, unread_by: str
) -> None:
    status, found, said = against(file, source)
    assert (status, found["conclusion"]) == (1, "wrong"), said
    told = [each for each in found["findings"] if each["kind"] == "mask-ignored" and each["phase"] == "whole"]
    assert [(each["about"]["input"], each["about"]["unread_by"]) for each in told] == [("attention_mask", unread_by)]
    assert "gives the same whatever 'attention_mask' hides" in told[0]["message"]


@pytest.mark.release
def test_a_file_without_the_mask_that_its_source_may_be_given_cannot_be_padded(against: Callable) -> None:
    status, found, said = against("maskless.onnx", "optional")
    assert (status, found["conclusion"]) == (0, "same_outputs"), said
    [told] = [each for each in found["findings"] if each["kind"] == "mask-missing"]
    assert (told["severity"], told["about"]["masks"]) == ("warning", ["attention_mask"])
    [padding] = [each for each in found["covered"] if each["question"] == "padding"]
    assert padding["answer"] == "no"
    assert "it takes no mask, and" in padding["said"]
    assert "it cannot be padded, as" in said.splitlines()[-3]


@pytest.mark.release
def test_a_causal_file_from_token_ids_is_what_its_causal_source_is(against: Callable) -> None:
    """What stands before its layer is judged with the causal mask that is built in."""
    status, found, said = against("decoder.onnx", "decoder")
    assert status == 0, said
    assert "whole-in-line" in {each["kind"] for each in found["findings"]}


@pytest.mark.parametrize(("source", "status"), [("filled", 0), of_a_release("barely_added", 1)])
def test_hidden_positions_that_see_hidden_ones_alone_are_left_to_each(
    against: Callable, source: str, status: int
) -> None:
    """Padding on the left of a decoder: nothing says what its positions give, and nobody reads that."""
    ended, found, said = against("added.onnx", source)
    assert ended == status, said
    left = [each for each in found["findings"] if "hidden positions that see hidden ones alone" in each["message"]]
    if source == "filled":
        assert {(each["severity"], each["kind"]) for each in left} == {("warning", "fully-masked-rows-differ")}
        assert any(each["about"]["case"].endswith("padding on the left") for each in left)
        assert found["whole"]["agrees"]


@pytest.mark.parametrize(
    ("source", "status", "severity"), [("known", 0, "warning"), of_a_release("needing", 1, "error")]
)
def test_a_known_layer_without_its_mask_is_judged_as_an_unknown_one_is(
    against: Callable, source: str, status: int, severity: str
) -> None:
    """It was an error, whatever its source asks for: who never pads exports no mask."""
    ended, found, said = against("known.onnx", source)
    assert ended == status, said
    [told] = [each for each in found["findings"] if each["kind"] == "mask-missing"]
    assert (told["severity"], told["about"]["masks"]) == (severity, ["attention_mask"])
    assert ("it cannot be padded, as" in said) == (status == 0)
    [padding] = [each for each in found["covered"] if each["question"] == "padding"]
    assert padding["answer"] == ("no" if status == 0 else "not asked")


@pytest.mark.parametrize("source", ["fast", of_a_release("exact")])
def test_a_choice_of_a_source_is_no_fault_of_its_file(against: Callable, source: str) -> None:
    """Far from zero two right runs of E[x²] − E[x]² are as far apart as each is off: the file was wrong. `conform
    check` says of its source that it makes a choice."""
    status, found, said = against("fast.onnx", source)
    told = [each for each in found["findings"] if each["kind"] == "choice-of-its-own"]
    if source == "exact":
        assert (status, told) == (1, []), said
        return
    assert (status, found["conclusion"]) == (0, "as_stated"), said
    assert [each["about"]["deviations"] for each in told] == [["norm-fast-variance"]]
    assert "with norm-fast-variance; parameters, stages and outputs were compared" in said.splitlines()[-3]
    outcomes = {each["outcome"] for run in found["runtimes"] for each in run["records"]}
    assert outcomes == {"pass", "deviates"}


def test_a_fault_is_told_once_though_its_source_is_lost_elsewhere(against: Callable) -> None:
    """Far from zero both are off, each in its way: of that, and of E[x²] − E[x]², the fault is not made."""
    status, found, said = against("fast_scaled.onnx", "fast")
    assert (status, found["conclusion"]) == (1, "wrong"), said
    told = [each["about"] for each in found["findings"] if each["kind"] == "differs-from-source"]
    assert {(each["file_is_off"], each["source_is_off"]) for each in told} == {(True, False)}, said


@pytest.mark.release
def test_an_input_that_a_source_needs_and_the_file_has_not_is_named(against: Callable) -> None:
    """ONNX's reference listed every value that it had."""
    status, _, said = against("maskless.onnx", "right.onnx")
    assert status == 2, said
    assert "it needs 'attention_mask' too, which was not given" in said


def test_a_file_whose_output_has_not_the_shape_of_its_input_has_that_of_its_source(against: Callable) -> None:
    status, found, said = against("latents.onnx", "latents")
    assert (status, found["conclusion"]) == (0, "same_outputs"), said


def test_an_output_of_another_shape_is_not_left_out(against: Callable, files: Path) -> None:
    """The first item where the first position is due: it passed, with a warning that it has no counterpart."""
    model = onnx.load(files / "right.onnx")
    [gather] = [node for node in model.graph.node if "first" in node.output]
    next(each for each in gather.attribute if each.name == "axis").i = 0
    del model.graph.output[1].type.tensor_type.shape.dim[:]
    onnx.save(model, files / "item.onnx")
    status, found, said = against("item.onnx", "right")
    assert (status, found["conclusion"]) == (1, "wrong"), said
    [told] = [each for each in found["findings"] if each["kind"] == "output-differs"]
    assert (told["about"]["output"], "its shape is" in told["message"]) == ("first", True)


def test_what_is_wrong_with_a_file_is_told_whatever_its_source_is(against: Callable, files: Path) -> None:
    """It was left out where the source's layer could not be read: the source was blamed for all."""
    model = onnx.load(files / "right.onnx")
    model.graph.input.append(model.graph.input[0])
    onnx.save(model, files / "twice.onnx")
    _, found, said = against("twice.onnx", "right")
    assert any(
        "'ids' has been used as graph input names multiple times" in each["message"] for each in found["findings"]
    )
    assert found["status"] != 0, said


def test_two_files_are_compared_by_their_outputs(against: Callable) -> None:
    assert against("right.onnx", "right.onnx")[0] == 0
    assert against("right.onnx", "shifted.onnx")[0] == 1


@pytest.mark.release
def test_a_file_is_compared_with_outputs_that_were_saved(against: Callable) -> None:
    status, found, said = against("right.onnx", "right.npz")
    assert (status, found["conclusion"]) == (0, "same_outputs"), said
    assert 0 < found["whole"]["rms"] < 3
    assert found["whole"]["outputs"] == {"y": "y", "first": "first"}
    assert {each["answer"] for each in found["covered"][:3]} == {"not asked"}  # one size, and no padding by itself
    for wrong in ("shifted.npz", "gelu.npz"):
        status, found, said = against("right.onnx", wrong)
        assert (status, found["conclusion"]) == (1, "wrong"), said
        assert found["whole"]["rms"] > 1e4


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (b"no archive", "cannot be read"),
        ({"ids": np.zeros((2, 3), np.int64)}, "holds no array for the input 'attention_mask'"),
        ({"ids": np.zeros(3, np.int64), **MASKED}, "'ids' has the shape [3], and the file takes [batch, sequence]"),
        ({"ids": np.zeros((2, 3)), **MASKED}, "'ids' is of float64, and the file takes int64"),
        ({"ids": np.zeros((2, 3), np.int64), **MASKED}, "holds no output of the file"),
        ({"ids": np.zeros((2, 3), np.int64), **MASKED, "z": np.zeros(2)}, "'z' is neither an input nor an output"),
        ({"ids": np.zeros((2, 3), np.int64), **MASKED, "y": np.array([None])}, "cannot be read"),
    ],
    ids=["no archive", "no mask", "shape", "format", "no output", "unknown", "objects"],
)
def test_saved_outputs_that_are_none_of_the_file_are_refused(
    arrays: bytes | dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "saved.npz"
    path.write_bytes(arrays) if isinstance(arrays, bytes) else np.savez(path, **arrays)
    sizes = ("batch", "sequence")
    inputs = [WholeInput(name=name, dtype="int64", shape=sizes) for name in ("ids", "attention_mask")]
    whole = WholeFile(inputs=tuple(inputs), outputs=(Port(name="y", dtype="float32", shape=(*sizes, 16)),))
    with pytest.raises(InputError) as refused:
        saved(path, whole, "--against saved.npz")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("source", "why"),
    [of_a_release("noisy", "otherwise the second time"), ("other_inputs", "the file takes ids, attention_mask")],
)
def test_a_source_that_is_no_measure_is_said_before_anything_is_compared(
    against: Callable, source: str, why: str
) -> None:
    status, found, said = against("right.onnx", source)
    assert status == 2, said
    assert why in "; ".join(found["whole"]["not_compared"])


WINDOWED = """<ir_version: 8, opset_import: ["" : 17]>
local (float[batch, sequence, 8] x) => (float[batch, sequence, 8] y)
<int64 zero = {0}, int64 one = {1}, int64 side = {SIDE}, float low = {-1e30}, float none = {0.0}> {
    sizes = Shape(x)  length = Gather(sizes, one)  places = Range(zero, length, one)
    first = Constant<value_ints = [0]>()  second = Constant<value_ints = [1]>()
    row = Unsqueeze(places, first)  column = Unsqueeze(places, second)  apart = Sub(row, column)  far = Abs(apart)
    beyond = Greater(far, side)  added = Where(beyond, low, none)
    turned = Transpose<perm = [0, 2, 1]>(x)  scores = MatMul(x, turned)  shown = Add(scores, added)
    weights = Softmax<axis = -1>(shown)  y = MatMul(weights, x)
}"""


@pytest.mark.parametrize(("side", "status"), [(64, 0), (80, 1)])
def test_a_window_wider_than_ordinary_sizes_is_compared(
    conform: Callable, tmp_path: Path, side: int, status: int
) -> None:
    import onnx

    for name, width in (("file", side), ("source", 64)):
        onnx.save(onnx.parser.parse_model(WINDOWED.replace("SIDE", str(width))), tmp_path / f"{name}.onnx")
    told = ("--against", tmp_path / "source.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    ended = conform("validate", tmp_path / "file.onnx", *told)
    assert ended.status == status, ended.stdout + ended.stderr
    assert ("1 x 300: rms" in ended.stdout) == bool(status)


QUERIES = """<ir_version: 8, opset_import: ["" : 17]>
own (float[batch, sequence, 8] x, bool[batch, 1, sequence, sequence] mask) => (float[batch, sequence, 8] y)
<float low = {-1e30}, int64[1] first = {0}, int64[1] axis = {2}, int64[1] end = {END}, int64[1] heads = {1}> {
    seen = Slice(mask, first, end, axis)  each = Squeeze(seen, heads)
    turned = Transpose<perm = [0, 2, 1]>(x)  scores = MatMul(x, turned)  shown = Where(each, scores, low)
    weights = Softmax<axis = -1>(shown)  y = MatMul(weights, x)
}"""


def test_a_mask_of_each_query_is_not_one_for_all(conform: Callable, tmp_path: Path) -> None:
    """Of a mask whose rows are the same a file may take the first alone."""
    import onnx

    for name, end in (("file", "1"), ("source", "1000")):
        onnx.save(onnx.parser.parse_model(QUERIES.replace("END", end)), tmp_path / f"{name}.onnx")
    told = ("--against", tmp_path / "source.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    ended = conform("validate", tmp_path / "file.onnx", *told)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "3 x 20, another mask for each query: rms" in ended.stdout


TURNED = """<ir_version: 8, opset_import: ["" : 17]>
turned (float[batch, 8, sequence] z, bool[batch, sequence] mask) => (float[batch, 8, sequence] y)
<float low = {-1e30}, int64[1] queries = {1}, float[8] gain = {1, 1, 1, 1, 1, 1, 1, 1}> {
    x = Transpose<perm = [0, 2, 1]>(z)  n = LayerNormalization<axis = -1>(x, gain)
    seen = Unsqueeze(mask, queries)  turned = Transpose<perm = [0, 2, 1]>(n)  scores = MatMul(n, turned)
    shown = Where(seen, scores, low)  weights = Softmax<axis = -1>(shown)  c = MatMul(weights, n)
    sum = Add(x, c)  y = Transpose<perm = [0, 2, 1]>(sum)
}"""


def test_features_before_positions_are_no_fault_of_the_mask(conform: Callable, tmp_path: Path) -> None:
    import onnx

    onnx.save(onnx.parser.parse_model(TURNED), tmp_path / "turned.onnx")
    told = ("--against", tmp_path / "turned.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    ended = conform("validate", tmp_path / "turned.onnx", *told)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "Other lengths?      yes: 1, 7, 20, 33 and 300" in ended.stdout


def test_a_size_of_the_example_in_a_file_of_no_known_layer_is_an_error(conform: Callable, tmp_path: Path) -> None:
    import onnx

    baked = WINDOWED.replace("<int64 zero", "<int64[3] then = {0, 6, 8}, int64 zero")
    baked = baked.replace(
        "turned = Transpose<perm = [0, 2, 1]>(x)", "z = Reshape(x, then) turned = Transpose<perm=[0, 2, 1]>(z)"
    )
    for name, text in (("file", baked), ("source", WINDOWED)):
        onnx.save(onnx.parser.parse_model(text.replace("SIDE", "64")), tmp_path / f"{name}.onnx")
    told = ("--against", tmp_path / "source.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    ended = conform("validate", tmp_path / "file.onnx", *told)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "the file runs at sequence 6 alone" in ended.stdout
    assert "2 x 20: it raises" in ended.stdout


def test_a_file_that_is_a_source_is_called_in_the_format_of_what_is_held_against_it(tmp_path: Path) -> None:
    """Beside the lowest number of float16 its scores are lost: σ of a float16 file has to have that in it."""
    import onnx

    from encoder_conformance.readers.onnx_file.calling import CalledFile

    text = """<ir_version: 8, opset_import: ["" : 17]>
    padded (float[n] x) => (float[n] y) <float[1] low = {-65504.0}> { s = Add(x, low) y = Softmax<axis = -1>(s) }"""
    path = tmp_path / "padded.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    x = np.array([0.0, 1.0, 2.0], np.float32)
    called = CalledFile(path, open=lambda _: pytest.fail("it is no run in its own format"))
    wide, narrow = (
        called.outputs({"precision": precision, "seed": None, "roundoff": 0.0}, {"x": x})["y"]
        for precision in ("float64", "float16")
    )
    assert wide == pytest.approx(np.exp(x - 2) / np.exp(x - 2).sum())
    assert narrow.dtype == np.float16
    assert narrow == pytest.approx(1 / 3, abs=1e-3)


def test_a_source_that_is_no_float64_is_compared_in_float32_and_that_is_said() -> None:
    from encoder_conformance.blackbox.inputs import WholeCase
    from encoder_conformance.blackbox.measured import Measure, Source
    from encoder_conformance.spec.outcome import Outcome
    from encoder_conformance.worker.failure import Failure

    class Narrow(Source):
        def __init__(self) -> None:
            self.held, self.request = "float32", SimpleNamespace(target="narrow")

        def outputs(self, inputs: Any, precision: str, seed: int | None = None) -> Any:
            wide = precision == "float64"
            return Failure(Outcome.ERROR, "no float64 here") if wide else {"y": 2 * inputs["x"]}

    measure = Measure(Narrow(), few=True)
    case = WholeCase("1 x 1", 1, 1, False, {"x": np.ones(3, np.float32)}, ("x",))
    assert measure.unfit(case) is None
    assert measure.widest == "float32"
