"""Files that somebody else made, with none of our code: what is in them is told, proved, and run."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx.utils
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import nn

from encoder_conformance import Masks, RunRequest
from encoder_conformance.impls.pytorch.adapter import PARAMETERS
from encoder_conformance.impls.pytorch.building import encoder_of
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.readers.onnx_file.inspection import inspect
from encoder_conformance.readers.onnx_file.tracing.rows import axes_of
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load

D, H, F = 24, 3, 40
Array = np.ndarray[Any, Any]
Make = Callable[..., Path]


class Masked(nn.Module):
    """A user's module around PyTorch's own layer, with the mask under a name of its own."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


def drawn(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module.eval()


def torch_file(path: Path, encoder: nn.Module, opset: int, *, dynamo: bool, evaluating: bool = True) -> Path:
    """Exported as PyTorch's pages say, with the fused fast path off."""
    torch.backends.mha.set_fastpath_enabled(False)
    given = torch.randn(2, 7, D), torch.zeros(2, 7, dtype=torch.bool)
    module = Masked(encoder)
    axes: dict[str, Any] = {"dynamic_axes": {name: {0: "batch", 1: "sequence"} for name in ("x", "mask", "output")}}
    if dynamo:
        free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
        axes = {"dynamic_shapes": (free, free), "external_data": False, "verbose": False}
    names = {"input_names": ["x", "mask"], "output_names": ["output"]}
    module = module.eval() if evaluating else module.train()
    torch.onnx.export(module, given, path, opset_version=opset, dynamo=dynamo, **names, **axes)
    return path


def state_of(module: nn.Module) -> dict[str, Array]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


@pytest.mark.parametrize(
    ("placement", "opset", "dynamo"),
    [
        pytest.param("pre", 18, True, marks=pytest.mark.release),
        pytest.param("post", 18, True, marks=pytest.mark.release),
        pytest.param("pre", 20, True, marks=pytest.mark.release),
        pytest.param("pre", 17, False, marks=pytest.mark.release),
        ("post", 17, False),
    ],
)
def test_pytorchs_own_layer(strangers: ModuleType, tmp_path: Path, placement: str, opset: int, dynamo: bool) -> None:
    made = nn.TransformerEncoderLayer(D, H, F, 0.1, "gelu", batch_first=True, norm_first=placement == "pre")
    path = torch_file(tmp_path / "layer.onnx", drawn(made), opset, dynamo=dynamo)
    seen = inspect(path, "ignore")
    said = [finding.message for finding in seen.findings.found]
    # The exporter that is not dynamo bakes the sequence of its example into a Reshape, and still declares it free.
    assert said == ([] if dynamo else ["sequence is declared free, and the file runs at sequence 7 alone"])
    strangers.assert_holds(
        seen,
        strangers.torch_layer(state_of(made)),
        d_model=D,
        norm__placement=placement,
        norm__kind="layer_norm",
        norm__epsilon=float(np.float32(1e-5)),
        attention__num_heads=H,
        attention__projections="full",
        attention__qkv_bias=True,
        attention__output_bias=True,
        attention__scale="head_dim",
        attention__fully_masked_row="nan",
        feed_forward={"d_ff": F, "activation": "gelu", "bias": True},
        stack={"layers": 1, "final_norm": False},
    )
    described = seen.description()
    assert described["roles"] == {
        "x": "x",
        "output": "output",
        "masks": [{"name": "mask", "axes": "BS", "meaning": "ignore", "counted": False}],
        "layout": "BSD",
    }
    assert len(described["stages"]) == 19, "every stage is a value of the graph"
    assert described["parameters"]["attention.key.weight"]["form"] == "slice"


class OfKeys(nn.Module):
    """A layer whose mask hides keys, behind the name that PyTorch's own layer has for it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, src_key_padding_mask: torch.Tensor) -> torch.Tensor:
        return self.layer(x, ~src_key_padding_mask[:, None, None])


@pytest.mark.release
@pytest.mark.parametrize("lacking", [("attention.key",), ("attention.value", "feed_forward.hidden")], ids=", ".join)
def test_a_map_without_the_bias_of_its_like_is_read_so(
    strangers: ModuleType, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    stated = load().layers["pre-gelu"].lacking(lacking)
    made = drawn(encoder_of(stated.model_dump(mode="json")))
    seen = strangers.looked_into(torch_file(tmp_path / "layer.onnx", OfKeys(made), 18, dynamo=True))
    PARAMETERS.to_own(layer_parameters(stated, {}), stated.model_dump(mode="json"))
    strangers.assert_holds(seen, PARAMETERS.to_spec(state_of(made)))
    read = Layer.model_validate(seen.description()["layer"], strict=False)
    assert read.lacks_bias == lacking
    assert {fact["key"] for fact in seen.description()["facts"]} >= {f"{name}_bias" for name in lacking}


@pytest.mark.parametrize("norm", [pytest.param(None, marks=pytest.mark.release), nn.LayerNorm(D)])
def test_pytorchs_stack(strangers: ModuleType, tmp_path: Path, norm: nn.Module | None) -> None:
    one = nn.TransformerEncoderLayer(D, H, F, batch_first=True, norm_first=norm is not None)
    made = drawn(nn.TransformerEncoder(one, 2, norm, enable_nested_tensor=False))
    seen = strangers.looked_into(torch_file(tmp_path / "stack.onnx", made, 18, dynamo=True))
    state = state_of(made)
    due = strangers.torch_layer(state, "layers.0.", "layers.0.") | strangers.torch_layer(
        state, "layers.1.", "layers.1."
    )
    if norm is not None:
        due |= {"final_norm.gain": state["norm.weight"], "final_norm.shift": state["norm.bias"]}
    strangers.assert_holds(seen, due, stack={"layers": 2, "final_norm": norm is not None})
    assert {"layer_0", "layer_1", "output"} <= seen.description()["stages"].keys()


@pytest.mark.release
def test_a_fresh_layer_whose_equal_parameters_are_one_initializer(strangers: ModuleType, tmp_path: Path) -> None:
    made = nn.TransformerEncoderLayer(D, H, F, batch_first=True).eval()
    seen = strangers.looked_into(torch_file(tmp_path / "fresh.onnx", made, 18, dynamo=True))
    held = seen.description()["parameters"]
    assert held["norm1.gain"]["initializer"] == held["norm2.gain"]["initializer"]
    assert np.array_equal(seen.parameters()["norm2.gain"], np.ones(D, np.float32))
    assert strangers.fact(seen, "proved")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = nn.TransformerEncoderLayer(D, H, F, batch_first=True)
    return torch_file(tmp_path_factory.mktemp("exported") / "layer.onnx", drawn(made), 18, dynamo=True)


@pytest.mark.release
def test_other_parameters_go_in_and_the_stages_come_out(strangers: ModuleType, exported: Path) -> None:
    started, layer, own = strangers.adapter(exported)
    strangers.assert_hides_padding(started, D)
    draw = np.random.default_rng(1)
    others = {name: draw.normal(size=value.shape, scale=0.3).astype(np.float32) for name, value in own.items()}
    held = started.build(layer, others, "float32")
    assert all(np.array_equal(held[name], value) for name, value in others.items())
    x = draw.normal(size=(3, 11, D)).astype(np.float32)
    given = LayerInputs(x.astype(np.float64), {name: v.astype(np.float64) for name, v in others.items()}, None)
    due = forward(Layer.model_validate_json(json.dumps(layer)), given, Arithmetic(np.float64))
    stages = started.stages(x, Masks(None, None), RunRequest())
    assert stages.keys() == due.keys()
    for name, value in due.items():
        assert stages[name].shape == value.shape, name
        assert np.allclose(stages[name], value, atol=1e-4), name
    assert np.allclose(started.output(x, Masks(None, None), RunRequest()), due["output"], atol=1e-4)


def test_what_the_file_cannot_be_is_refused(strangers: ModuleType, exported: Path) -> None:
    started, layer, own = strangers.adapter(exported)
    with pytest.raises(NotImplementedError, match="an attention mask is given, and the file has no input for one"):
        started.output(np.zeros((1, 3, D), np.float32), Masks(None, None, causal=True, sequence=3), RunRequest())
    with pytest.raises(NotImplementedError, match="no input for one"):
        started.output(np.zeros((1, 3, D), np.float32), Masks(None, None, bias=np.ones((1, H, 3, 3))), RunRequest())
    with pytest.raises(ValueError, match="asked for float64, and the file takes float32"):
        started.build(layer, own, "float64")
    with pytest.raises(ValueError, match=r"the file has no final_norm\.gain"):
        started.build(layer, {**own, "final_norm.gain": own["norm1.gain"]}, "float32")
    with pytest.raises(ValueError, match="it has 6 heads, and the file 3"):
        started.build({**layer, "attention": {**layer["attention"], "num_heads": 6}}, own, "float32")
    with pytest.raises(ValueError, match=r"norm1.gain is \[3\]"):
        started.build(layer, {**own, "norm1.gain": np.ones(3, np.float32)}, "float32")


@pytest.mark.release
def test_dropout_that_was_left_on_is_found(tmp_path: Path) -> None:
    class Training(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = drawn(nn.TransformerEncoderLayer(D, H, F, batch_first=True))

        def forward(self, x: torch.Tensor, src_key_padding_mask: torch.Tensor) -> torch.Tensor:
            return self.layer(x, src_key_padding_mask=src_key_padding_mask)

    seen = inspect(torch_file(tmp_path / "train.onnx", Training(), 18, dynamo=True, evaluating=False), None)
    [found] = [f for f in seen.findings.found if f.phase == "operators"]
    assert "Dropout nodes are in training mode" in found.message
    assert "eval()" in found.hint
    assert seen.description()["layer"]["norm"]["placement"] == "post", "what is under the dropout is told all the same"


# Written by hand, with every exporter that a mask and a head can take


HEADS = """
 q = MatMul(n1, Wq)  qb = Add(q, bq)  k = MatMul(n1, Wk)  kb = Add(k, bk)  v = MatMul(n1, Wv)  vb = Add(v, bv)
 qr = Reshape(qb, split)  kr = Reshape(kb, split)  vr = Reshape(vb, split)
 qh = Transpose<perm=[0,2,1,3]>(qr)  kh = Transpose<perm=[0,2,3,1]>(kr)  vh = Transpose<perm=[0,2,1,3]>(vr)
 raw = MatMul(qh, kh)  scores = Div(raw, root)"""
REST = """
 w = Softmax<axis=-1>(masked)  c = MatMul(w, vh)  ct = Transpose<perm=[0,2,1,3]>(c)  cm = Reshape(ct, join)
 o = MatMul(cm, Wo)  ob = Add(o, bo)  r1 = Add(x, ob)  n2 = LayerNormalization<axis=-1, epsilon=0.001>(r1, g2, s2)
 h = MatMul(n2, W1)  hb = Add(h, c1)  sg = Sigmoid(hb)  a = Mul(hb, sg)  f = MatMul(a, W2)  fb = Add(f, c2)
 y = Add(r1, fb)"""
NORM1 = "n1 = LayerNormalization<axis=-1, epsilon=0.001>(x, g1, s1)"
SIZES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Wq", "Wk", "Wv", "Wo"), (D, D)),
    **dict.fromkeys(("bq", "bk", "bv", "bo", "g1", "s1", "g2", "s2", "c2"), (D,)),
    **{"W1": (D, F), "W2": (F, D), "c1": (F,)},
}
NAMES = {
    **{f"attention.{name}.weight": f"W{name[0]}" for name in ("query", "key", "value", "output")},
    **{f"attention.{name}.bias": f"b{name[0]}" for name in ("query", "key", "value", "output")},
    **{"norm1.gain": "g1", "norm1.shift": "s1", "norm2.gain": "g2", "norm2.shift": "s2"},
    **{"feed_forward.hidden.weight": "W1", "feed_forward.hidden.bias": "c1"},
    **{"feed_forward.output.weight": "W2", "feed_forward.output.bias": "c2"},
}
SHAPING = {"split": np.array([0, 0, H, D // H]), "join": np.array([0, 0, D]), "root": np.float32((D // H) ** 0.5)}


def parsed(signature: str, body: str, opset: int, held: dict[str, Array], **sizes: tuple[int, ...]) -> onnx.ModelProto:
    """A graph from text, with drawn weights of these sizes and constants as they are."""
    graph = parser.parse_graph(f"layer {signature} {{ {body} }}")
    draw = np.random.default_rng(3)
    made = {name: draw.normal(size=size, scale=0.3).astype(np.float32) for name, size in sizes.items()}
    used = {name for node in graph.node for name in node.input}
    for name, value in {**made, **held}.items():
        if name in used:
            graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture
def saved(tmp_path: Path) -> Make:
    def save(model: onnx.ModelProto, name: str = "model.onnx", **how: Any) -> Path:
        onnx.save(model, tmp_path / name, **how)
        return tmp_path / name

    return save


def hand_written(mask: str, masking: str, opset: int = 18, x: str = "batch, sequence, 24") -> onnx.ModelProto:
    signature = f"(float[{x}] x{', ' + mask if mask else ''}) => (float[{x}] y)"
    held = {**SHAPING, "low": np.float32(-1e9), "one": np.float32(1)}
    return parsed(signature, f"{NORM1} {HEADS} {masking} {REST}", opset, held, **SIZES)


def named(model: onnx.ModelProto) -> dict[str, Array]:
    """The parameters of a hand-written graph in the specification's names."""
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {name: held[own] for name, own in NAMES.items() if own in held}


@pytest.mark.parametrize(
    ("mask", "masking", "role"),
    [
        ("bool[batch, 1, sequence, sequence] m", "masked = Where(m, scores, low)", ("B1SS", "attend", "uniform")),
        ("bool[batch, sequence] m", "u = Unsqueeze(m, mid) masked = Where(u, low, scores)",
         ("BS", "ignore", "uniform")),
        ("float[batch, 1, 1, sequence] m", "masked = Add(scores, m)", ("B11S", "additive", "uniform")),
        ("float[batch, 1, 1, sequence] m", "i = Sub(one, m) l = Mul(i, low) masked = Add(scores, l)",
         ("B11S", "attend", "uniform")),
        ("int64[sequence, sequence] m", "b = Cast<to=9>(m) masked = Where(b, scores, low)",
         ("SS", "attend", "uniform")),
        ("bool[batch, 3, sequence, sequence] m", "masked = Where(m, low, scores)", ("BHSS", "ignore", "uniform")),
    ],
)  # fmt: skip
def test_a_hand_written_layer_with_any_mask(
    strangers: ModuleType, saved: Make, mask: str, masking: str, role: tuple[str, str, str]
) -> None:
    model = hand_written(mask, masking)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "mid"))
    path = saved(model)
    seen = strangers.looked_into(path)
    axes, meaning, row = role
    assert seen.description()["roles"]["masks"] == [{"name": "m", "axes": axes, "meaning": meaning, "counted": False}]
    strangers.assert_holds(
        seen,
        named(model),
        norm={"placement": "pre", "kind": "layer_norm", "epsilon": float(np.float32(1e-3))},
        attention__fully_masked_row=row,
        feed_forward__activation="silu",
    )
    other = {"attend": "ignore", "ignore": "additive", "additive": "attend"}[meaning]
    assert not [f for f in inspect(path, meaning).findings.found if f.phase == "masks"]
    [contradicted] = [f for f in inspect(path, other).findings.found if f.phase == "masks"]
    assert contradicted.severity == "error"
    assert f"means {meaning}" in contradicted.message
    if axes != "SS":
        strangers.assert_hides_padding(strangers.adapter(path)[0], D)


def test_a_causal_mask_goes_into_an_attention_mask(strangers: ModuleType, saved: Make) -> None:
    started, _, _ = strangers.adapter(
        saved(hand_written("bool[sequence, sequence] m", "masked = Where(m, scores, low)"))
    )
    x = np.random.default_rng(0).normal(size=(2, 6, D)).astype(np.float32)
    seen = started.stages(x, Masks(None, None, causal=True, sequence=6), RunRequest())
    assert not np.triu(seen["attention_weights"], 1).any()
    with pytest.raises(NotImplementedError, match="differs from one item to the next"):
        started.output(x, Masks(np.arange(6) < np.array([[6], [4]]), None), RunRequest())


@pytest.mark.parametrize("opset", [23, 24])
def test_the_attention_operator(strangers: ModuleType, saved: Make, opset: int) -> None:
    body = """q = MatMul(x, Wq)  qb = Add(q, bq)  k = MatMul(x, Wk)  kb = Add(k, bk)  v = MatMul(x, Wv)  vb = Add(v, bv)
     c = Attention<q_num_heads=3, kv_num_heads=3>(qb, kb, vb, m)  o = MatMul(c, Wo)  ob = Add(o, bo)  r1 = Add(x, ob)
     n1 = RMSNormalization<axis=-1, epsilon=0.000001>(r1, g1)  h = MatMul(n1, W1)  hb = Add(h, c1)
     a = Gelu<approximate="tanh">(hb)  f = MatMul(a, W2)  fb = Add(f, c2)  r2 = Add(n1, fb)
     y = RMSNormalization<axis=-1, epsilon=0.000001>(r2, g2)"""
    signature = "(float[batch,sequence,24] x, bool[batch,1,sequence,sequence] m) => (float[batch,sequence,24] y)"
    model = parsed(signature, body, opset, {}, **SIZES)
    seen = strangers.looked_into(saved(model))
    strangers.assert_holds(
        seen,
        named(model),
        norm={"placement": "post", "kind": "rms_norm", "epsilon": float(np.float32(1e-6))},
        attention__fully_masked_row="zero",
        feed_forward__activation="gelu_tanh",
    )
    stages = seen.description()["stages"]
    assert "context" in stages
    assert not {"attention_scores", "attention_weights"} & stages.keys(), "no value of the graph is either"


FUSED = """
 m = ReduceMean<keepdims=1>(x, last)  c = Sub(x, m)  s = Mul(c, c)  va = ReduceMean<keepdims=1>(s, last)
 ve = Add(va, eps)  sd = Sqrt(ve)  nn = Div(c, sd)  ng = Mul(g1, nn)  n1 = Add(ng, s1)
 qkv = Einsum<equation="sbd,dthe->tbhse">(n1, Wqkv)  q3, k3, v3 = Split<axis=0, num_outputs=3>(qkv)
 q = Squeeze(q3, zero)  k = Squeeze(k3, zero)  v = Squeeze(v3, zero)
 raw = Einsum<equation="bhke,bhqe->bhkq">(k, q)  sc = Mul(raw, scale)  w = Softmax<axis=2>(sc)
 cx = Einsum<equation="bhkq,bhke->qbhe">(w, v)  o = Einsum<equation="qbhe,hed->qbd">(cx, Wout)  r1 = Add(x, o)
 h = MatMul(r1n, W1)  a = Relu(h)  f = MatMul(a, W2)  y = Add(r1, f)
"""
NORM2 = """
 sq = Pow(r1, two)  ms = ReduceMean<keepdims=1>(sq, last)  me = Add(ms, eps)  rs = Sqrt(me)  iv = Reciprocal(rs)
 rn = Mul(r1, iv)  r1n = Mul(rn, g2)
"""


def test_one_fused_kernel_keys_before_queries_and_the_sequence_first(strangers: ModuleType, saved: Make) -> None:
    norm2 = NORM2.replace("sq =", "mu = ReduceMean<keepdims=1>(r1, last)  d = Sub(r1, mu)  sq =")
    norm2 = norm2.replace("Pow(r1,", "Pow(d,").replace("Mul(r1, iv)", "Mul(d, iv)").replace("r1n =", "gn =")
    body = FUSED.replace(" h = MatMul", norm2 + " r1n = Add(gn, s2)  h = MatMul")
    held = {
        "last": np.array([-1]), "zero": np.array([0]), "eps": np.float32(1e-6), "two": np.float32(2),
        "scale": np.float32((D // H) ** -0.5),
    }  # fmt: skip
    sizes = {**SIZES, "Wqkv": (D, 3, H, D // H), "Wout": (H, D // H, D)}
    model = parsed("(float[sequence,batch,24] x) => (float[sequence,batch,24] y)", body, 18, held, **sizes)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    due = {name: value for name, value in named(model).items() if "attention" not in name}
    for at, name in enumerate(("query", "key", "value")):
        due[f"attention.{name}.weight"] = values["Wqkv"][:, at].reshape(D, D)
    due["attention.output.weight"] = values["Wout"].reshape(D, D)
    path = saved(model)
    strangers.assert_holds(strangers.looked_into(path), due, attention__qkv_bias=False, feed_forward__bias=False)
    started, _, own = strangers.adapter(path)
    x = np.random.default_rng(2).normal(size=(4, 3, D)).astype(np.float32)
    assert started.output(x, Masks(None, None), RunRequest()).shape == x.shape
    assert np.array_equal(
        started.stages(x, Masks(None, None), RunRequest())["output"], started.output(x, Masks(None, None), RunRequest())
    )
    assert own.keys() == due.keys()


def test_a_gain_and_a_shift_that_are_equal_are_told_apart(strangers: ModuleType, saved: Make) -> None:
    model = hand_written("", "masked = Identity(scores)")
    for tensor in model.graph.initializer:
        if tensor.name in ("g1", "s1"):
            tensor.CopyFrom(numpy_helper.from_array(np.full(D, 0.5, np.float32), tensor.name))
    held = strangers.looked_into(saved(model)).description()["parameters"]
    assert held["norm1.gain"]["initializer"] == "g1"
    assert held["norm1.shift"]["initializer"] == "s1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("r1 = Add(x, ob)", "r1 = Identity(ob)"), "residual1 is missing: a residual sum was looked for"),
        (("a = Mul(hb, sg)", "a = Sin(hb)"), "Sin has no place in an encoder layer"),
        (
            ("w = Softmax<axis=-1>(masked)", "w = Softmax<axis=1>(masked)"),
            "over something else than the scores of one row",
        ),
        (("h = MatMul(n2, W1)", "h = MatMul(r1, W1)"), "no norm as norm2"),
        (("sg = Sigmoid(hb)", "sg = MatMul(n2, W1)"), "the feed-forward network multiplies two maps otherwise"),
    ],
)
def test_what_is_no_encoder_layer_is_said_and_not_guessed(saved: Make, change: tuple[str, str], said: str) -> None:
    body = f"{NORM1} {HEADS} masked = Identity(scores) {REST}".replace(*change)
    model = parsed("(float[batch,sequence,24] x) => (float[batch,sequence,24] y)", body, 18, SHAPING, **SIZES)
    seen = inspect(saved(model), None)
    assert seen.description()["layer"] is None
    [found] = [f for f in seen.findings.found if f.phase == "layer" and f.severity == "error"]
    assert said in found.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("scores = Div(raw, root)", "scores = Identity(raw)"), "which is neither 1/√8 (head_dim) nor 1/√24 (d_model)"),
        (("sg = Sigmoid(hb)", "q16 = Mul(hb, by) sg = Sigmoid(q16)"), "and no gelu exactly"),
    ],
)
def test_what_is_nearly_a_layer_is_told_and_does_not_pass_for_one(
    strangers: ModuleType, saved: Make, change: tuple[str, str], said: str
) -> None:
    body = f"{NORM1} {HEADS} masked = Identity(scores) {REST}".replace(*change)
    held = {**SHAPING, "by": np.float32(1.6)}
    seen = inspect(saved(parsed("(float[b,s,24] x) => (float[b,s,24] y)", body, 18, held, **SIZES)), None)
    warnings = [f.message for f in seen.findings.found if f.severity == "warning"]
    assert any(said in message for message in warnings)
    assert seen.description()["layer"] is not None
    assert not strangers.fact(seen, "proved")


def test_quick_gelu_is_read_as_what_it_is(strangers: ModuleType, saved: Make) -> None:
    """CLIP's QuickGELU: proved by a run, and not taken for a GELU that is off."""
    body = f"{NORM1} {HEADS} masked = Identity(scores) {REST}".replace(
        "sg = Sigmoid(hb)", "q17 = Mul(hb, by) sg = Sigmoid(q17)"
    )
    held = {**SHAPING, "by": np.float32(1.702)}
    seen = inspect(saved(parsed("(float[b,s,24] x) => (float[b,s,24] y)", body, 18, held, **SIZES)), None)
    assert strangers.fact(seen, "feed_forward.activation") == "quick_gelu"
    assert strangers.fact(seen, "proved")
    assert [f.message for f in seen.findings.found if f.severity == "warning"] == []


def test_numbers_that_the_file_adds_to_the_scores_are_no_layer_of_the_specification(saved: Make) -> None:
    """Relative positions: a sentence, and not a wrong layer."""
    body = f"{NORM1} {HEADS} masked = Add(scores, table) {REST}"
    table = np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)
    signature = "(float[b,5,24] x) => (float[b,5,24] y)"
    seen = inspect(saved(parsed(signature, body, 18, {**SHAPING, "table": table}, **SIZES)), None)
    [found] = [f for f in seen.findings.found if f.phase == "layer" and f.severity == "error"]
    assert "numbers of query's and key's places are added to the scores" in found.message
    assert seen.description()["layer"] is None


NEAR = np.abs(np.arange(7)[:, None] - np.arange(7))
HIDES = {
    "window": (NEAR > 2, "", {"left": 2, "right": 2}),
    "causal window": ((NEAR > 2) | ~np.tri(7, dtype=np.bool_), "", {"left": 2, "right": 0}),
    "blocks": (
        np.arange(7)[:, None] // 3 != np.arange(7) // 3,
        "some positions are hidden from some others by a pattern of its own",
        None,
    ),
    "every other": (NEAR % 2 == 1, "some positions are hidden from some others by a pattern of its own", None),
    "causal": (~np.tri(7, dtype=np.bool_), "", None),
    "folded padding": (np.arange(7)[None] > np.full((7, 1), 4), "", None),
}
"""What a file hides by itself, [query, key], and what is said of it; "": it is a layer, with this window or with a mask
too many."""


@pytest.mark.parametrize("kind", HIDES)
def test_what_hides_by_itself_is_named_and_is_no_plain_layer(saved: Make, kind: str) -> None:
    hidden, said, window = HIDES[kind]
    body = f"{NORM1} {HEADS} masked = Add(scores, table) {REST}"
    table = np.where(hidden, np.float32(-1e9), np.float32(0))[None, None]
    signature = "(float[b,7,24] x) => (float[b,7,24] y)"
    seen = inspect(saved(parsed(signature, body, 18, {**SHAPING, "table": table}, **SIZES)), None)
    found = [f.message for f in seen.findings.found if f.phase == "layer" and f.severity == "error"]
    assert [said in message for message in found] == ([True] if said else [])
    layer = seen.description()["layer"]
    assert (layer is None) == bool(said)
    assert layer is None or layer["attention"].get("window") == window, found


def test_a_window_that_is_wider_than_the_graph_is_read_at_is_seen_at_many_positions(saved: Make) -> None:
    """Within ±64: at 5 positions, at which the graph is read, nothing is hidden."""
    body = f"""{NORM1} {HEADS} ss = Shape<start=1, end=2>(x) s0 = Squeeze(ss) i = Range(zero, s0, one64)
        col = Unsqueeze(i, one1) away = Sub(col, i) far = Abs(away) out = Greater(far, wide)
        masked = Where(out, low, scores) {REST}"""
    held = {
        "zero": np.array(0), "one64": np.array(1), "one1": np.array([1]), "wide": np.array(64),
        "low": np.float32(-np.inf),
    }  # fmt: skip
    file = saved(parsed("(float[b,s,24] x) => (float[b,s,24] y)", body, 18, {**SHAPING, **held}, **SIZES))
    seen = inspect(file, None)
    assert not [f.message for f in seen.findings.found if f.phase == "layer" and f.severity == "error"]
    assert seen.description()["layer"]["attention"]["window"] == {"left": 64, "right": 64}


def test_what_a_worker_says_is_what_the_harness_reads(saved: Make) -> None:
    described = inspect(
        saved(hand_written("bool[batch,sequence] m", "masked = Add(scores, scores)")), None
    ).description()
    FileDescription.model_validate_json(json.dumps(described))
    nothing = inspect(Path("/nowhere/model.onnx"), None).description()
    FileDescription.model_validate_json(json.dumps(nothing))


class FromIds(nn.Module):
    """As people export it: from token ids, an attention mask and token types, with a pooler behind the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(50, D), nn.Embedding(32, D), nn.Embedding(2, D)
        self.norm, self.pooler = nn.LayerNorm(D), nn.Linear(D, D)
        one = nn.TransformerEncoderLayer(D, H, F, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(one, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])) + self.types(types)
        y = self.layers(self.norm(x), src_key_padding_mask=mask == 0)
        return y, torch.tanh(self.pooler(y[:, 0]))


@pytest.mark.parametrize("dynamo", [True, pytest.param(False, marks=pytest.mark.release)])
def test_a_model_from_ids_is_judged_from_its_embedding_on(strangers: ModuleType, tmp_path: Path, dynamo: bool) -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    model, path = drawn(FromIds()), tmp_path / "whole.onnx"
    ids = torch.randint(1, 50, (2, 7))
    given, names = (ids, torch.ones_like(ids), torch.zeros_like(ids)), ("ids", "mask", "types")
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    axes: dict[str, Any] = {"dynamic_axes": {name: {0: "batch", 1: "sequence"} for name in (*names, "y")}}
    if dynamo:
        axes = {"dynamic_shapes": (free, free, free), "external_data": False, "verbose": False}
    torch.onnx.export(model, given, path, opset_version=18 if dynamo else 17, dynamo=dynamo,
                      input_names=list(names), output_names=["y", "pooled"], **axes)  # fmt: skip
    seen = inspect(path, None)
    # The exporter that is not dynamo bakes the sequence of its example into a Reshape.
    baked = [] if dynamo else ["sequence is declared free, and the file runs at sequence 7 alone"]
    assert [finding.message for finding in seen.findings.errors()] == baked
    state = state_of(model)
    due = strangers.torch_layer(state, "layers.layers.0.", "layers.0.")
    due |= strangers.torch_layer(state, "layers.layers.1.", "layers.1.")
    strangers.assert_holds(seen, due, stack={"layers": 2, "final_norm": False})


# What a tool made of a file


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_a_file_that_onnx_runtime_has_optimised(strangers: ModuleType, saved: Make, activation: str) -> None:
    model = hand_written("bool[batch, 1, sequence, sequence] m", "masked = Where(m, scores, low)")
    if activation == "gelu":
        signature = "(float[b,s,24] x) => (float[b,s,24] y)"
        gelu = "hd = Mul(hb, inv) sg = Erf(hd) e1 = Add(sg, one) e2 = Mul(hb, e1) a = Mul(e2, half)"
        body = f"{NORM1} {HEADS} masked = Identity(scores) {REST}".replace("sg = Sigmoid(hb)  a = Mul(hb, sg)", gelu)
        held = {**SHAPING, "inv": np.float32(0.5**0.5), "one": np.float32(1), "half": np.float32(0.5)}
        model = parsed(signature, body, 18, held, **SIZES)
    path = saved(model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_name("optimised.onnx"))
    onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    seen = strangers.looked_into(path.with_name("optimised.onnx"))
    assert any(name.startswith("com.microsoft") for name in seen.description()["operators"])
    strangers.assert_holds(seen, named(model), feed_forward__activation=activation)
    started, _, _ = strangers.adapter(path.with_name("optimised.onnx"))
    x = np.random.default_rng(0).normal(size=(2, 6, D)).astype(np.float32)
    assert np.array_equal(
        started.stages(x, Masks(None, None), RunRequest())["output"], started.output(x, Masks(None, None), RunRequest())
    )


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_was_halved_and_optimised_in_either_order(
    strangers: ModuleType, tmp_path: Path, before: bool
) -> None:
    """The constants of a fused operator are of the file's format, and one that was halved is an activation, still."""
    gelu = "hd = Mul(hb, inv) sg = Erf(hd) e1 = Add(sg, one) e2 = Mul(hb, e1) a = Mul(e2, half)"
    body = f"{NORM1} {HEADS} masked = Identity(scores) {REST}".replace("sg = Sigmoid(hb)  a = Mul(hb, sg)", gelu)
    held = {**SHAPING, "inv": np.float32(0.5**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = parsed("(float[b,s,24] x) => (float[b,s,24] y)", body, 18, held, **SIZES)

    def halved(model: onnx.ModelProto) -> onnx.ModelProto:
        return convert_float_to_float16(model, disable_shape_infer=True)

    def optimised(model: onnx.ModelProto) -> onnx.ModelProto:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return onnx.load(tmp_path / "optimised.onnx")

    path = tmp_path / "layer.onnx"
    onnx.save(optimised(halved(model)) if before else halved(optimised(model)), path)
    seen = strangers.looked_into(path)
    assert any(name.startswith("com.microsoft") for name in seen.description()["operators"])
    assert seen.description()["layer"]["feed_forward"]["activation"] == "gelu"
    assert strangers.fact(seen, "proved")


def test_a_file_whose_weights_are_integers(strangers: ModuleType, saved: Make) -> None:
    path = saved(hand_written("", "masked = Identity(scores)"))
    small = path.with_name("quantised.onnx")
    quantize_dynamic(path, small)
    seen = strangers.looked_into(small)
    assert "MatMulInteger" in seen.description()["operators"]
    full = strangers.looked_into(path).parameters()
    for name, value in seen.parameters().items():
        assert np.abs(value - full[name]).max() <= np.abs(full[name]).max() / 100, name
    started, layer, own = strangers.adapter(small)
    x = np.random.default_rng(0).normal(size=(2, 6, D)).astype(np.float32)
    real = strangers.adapter(path)[0].output(x, Masks(None, None), RunRequest())
    assert 0 < np.abs(started.output(x, Masks(None, None), RunRequest()) - real).max() < 0.5, "the file itself is run"
    assert (
        np.abs(started.stages(x, Masks(None, None), RunRequest())["query"] - x @ own["attention.query.weight"]).max()
        > 0
    )
    other = {**own, "attention.query.weight": own["attention.query.weight"] * 2}
    with pytest.raises(ValueError, match=r"attention\.query\.weight is computed in the file"):
        started.build(layer, other, "float32")


# What is wrong with a file, stage by stage


def only(seen: Any, stage: str, severity: str = "error") -> str:
    """The one finding of a stage."""
    [found] = [f for f in seen.findings.found if (f.phase, f.severity) == (stage, severity)]
    return str(found.message)


def test_files_that_are_none(tmp_path: Path) -> None:
    for name, content, said in (
        ("text.onnx", b"not a model at all, but plain text", "does not parse"),
        ("empty.onnx", b"", "is empty"),
        ("cut.onnx", hand_written("", "masked = Identity(scores)").SerializeToString()[:3000], "does not parse"),
    ):
        (tmp_path / name).write_bytes(content)
        assert said in only(inspect(tmp_path / name, None), "file")
    assert "is a folder" in only(inspect(tmp_path, None), "file")
    assert "cannot be opened" in only(inspect(tmp_path / "none.onnx", None), "file")
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(2**31)
    assert "2 GiB" in only(inspect(tmp_path / "large.onnx", None), "file")


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    def field(number: int, content: bytes) -> bytes:
        size, length = b"", len(content)
        while length > 127:
            size, length = size + bytes([length % 128 + 128]), length // 128
        return bytes([number * 8 + 2]) + size + bytes([length]) + content

    graph = b""
    for _ in range(300):
        graph = field(1, field(5, field(6, graph)))  # of a graph a node, of that an attribute, of that a graph
    (tmp_path / "deep.onnx").write_bytes(field(7, graph))
    assert "does not parse" in only(inspect(tmp_path / "deep.onnx", None), "file")


def with_external(folder: Path, **entries: str) -> Path:
    """A model whose weight Wq lies where these entries say."""
    model = hand_written("", "masked = Identity(scores)")
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "Wq")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def test_external_data_inside_the_folder_is_read(strangers: ModuleType, tmp_path: Path) -> None:
    path = with_external(tmp_path / "m", location="weights.bin", offset="0", length=str(D * D * 4))
    weight = np.random.default_rng(0).normal(size=(D, D)).astype(np.float32)
    (tmp_path / "m" / "weights.bin").write_bytes(weight.tobytes())
    seen = strangers.looked_into(path)
    assert np.array_equal(seen.parameters()["attention.query.weight"], weight)
    assert seen.description()["file"]["external"] == ["weights.bin"]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "../secret.bin"}, "points outside the model's folder"),
        ({"location": "/etc/hostname"}, "points outside the model's folder"),
        ({"location": "link.bin"}, "points outside the model's folder, by a link"),
        ({"location": "missing.bin"}, "is missing"),
        ({"location": "short.bin", "offset": "8", "length": "2304"}, "ends at byte 2312 of 'short.bin', which has 16"),
        ({"location": "short.bin", "offset": "-8"}, "begins at byte -8"),
        ({"location": "short.bin", "length": "many"}, "no number"),
        ({}, "has no location"),
    ],
)
def test_external_data_that_is_not_to_be_read(tmp_path: Path, entries: dict[str, str], said: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(D * D * 4))
    path = with_external(tmp_path / "m", **entries)
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "secret.bin")
    (tmp_path / "m" / "short.bin").write_bytes(bytes(16))
    assert said in only(inspect(path, None), "file")


def test_data_that_did_not_travel_with_a_model_are_not_missed_by_each_tensor(saved: Make) -> None:
    model, apart = hand_written("", "masked = Identity(scores)"), {"location": "d", "size_threshold": 0}
    path = saved(model, save_as_external_data=True, **apart)
    (path.parent / "d").unlink()
    told = [each.message for each in inspect(path, None).findings.errors("file")]
    assert len(told) == 5
    assert told[-1].startswith("external data of ")
    assert told[-1].endswith(" tensors more cannot be read, either")


def test_external_data_in_an_attribute_of_a_function_is_checked_too(tmp_path: Path) -> None:
    model = hand_written("", "masked = Identity(scores)")
    value = TensorProto(name="inner", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="../secret.bin")
    inner = helper.make_node("Constant", [], ["c"], value=value)
    function = helper.make_function("own", "f", [], ["c"], [inner], [helper.make_opsetid("", 18)])
    model.functions.append(function)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert "'inner' points outside" in only(inspect(tmp_path / "model.onnx", None), "file")


def test_a_size_that_no_memory_holds(saved: Make) -> None:
    model = hand_written("", "z = ConstantOfShape(huge) zs = ReduceSum<keepdims=0>(z) masked = Add(scores, zs)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "huge"))
    assert inspect(saved(model), None).findings.errors("loads")
    model = hand_written("", "masked = Identity(scores)")
    next(tensor for tensor in model.graph.initializer if tensor.name == "Wq").dims[:] = [1 << 40, 1 << 20]
    assert inspect(saved(model), None).findings.errors("checker")


def test_operators_that_are_not_there(saved: Make) -> None:
    gelu = hand_written("", "masked = Gelu(scores)", opset=20)
    gelu.opset_import[0].version = 18
    assert only(inspect(saved(gelu), None), "operators") == "Gelu is no operator of opset 18; it came with opset 20"
    older = hand_written("", "masked = Identity(scores)")
    older.opset_import[0].version = 14
    said = "LayerNormalization is no operator of opset 14; it came with opset 17; ONNX Runtime"
    [warned] = {f.message for f in inspect(saved(older), None).findings.found if f.phase == "operators"}
    assert warned.startswith(said), "it runs there, and its optimisers write files so"
    assert inspect(saved(older), None).findings.errors() == []
    custom = hand_written("", "masked = my.own.Thing(scores)")
    custom.opset_import.append(helper.make_opsetid("my.own", 1))
    assert "a custom operator" in only(inspect(saved(custom), None), "operators")
    newer = hand_written("", "masked = Identity(scores)")
    newer.opset_import[0].version = 999
    assert "opset 999 is newer than the installed onnx" in only(inspect(saved(newer), None), "operators")


def test_a_split_of_more_than_it_states_ends_no_process(saved: Make) -> None:
    """ONNX's shape inference, and ONNX Runtime with it, write beyond a vector."""
    split = hand_written("", "one, other = Split<axis=-1, num_outputs=1>(scores)  masked = Identity(scores)")
    assert only(inspect(saved(split), None), "checker") == "Split 'one' states num_outputs 1, and has 2"


def test_what_the_checker_finds(saved: Make) -> None:
    twice = hand_written("", "masked = Identity(scores)")
    twice.graph.node.append(twice.graph.node[0])
    assert "onnx.checker" in only(inspect(saved(twice), None), "checker")
    stale = hand_written("", "masked = Identity(scores)")
    stale.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", "sequence", 17]))
    assert inspect(saved(stale), None).findings.errors("checker")


def test_inputs_and_outputs_that_are_none_of_a_layer(saved: Make) -> None:
    ids = parsed("(int64[b,s] ids) => (float[b,s,24] y)", "y = Gather<axis=0>(E, ids)", 18, {}, E=(7, 24))
    assert "no floating-point input" in only(inspect(saved(ids), None), "interface")
    pooled = parsed("(float[b,s,24] x) => (float[b,5] y)", "m = ReduceMean<keepdims=0>(x, one) y = MatMul(m, W)", 18,
                    {"one": np.array([1])}, W=(24, 5))  # fmt: skip
    assert "no output has the shape of x" in only(inspect(saved(pooled), None), "interface")


@pytest.mark.parametrize(
    ("x", "severity", "said"),
    [
        ("4, sequence, 24", "warning", "batch is fixed to 4"),
        ("batch, 6, 24", "warning", "sequence is fixed to 6"),
        ("n, n, 24", "error", "batch and sequence are one symbol"),
    ],
)
def test_dimensions_that_are_declared_wrong(saved: Make, x: str, severity: str, said: str) -> None:
    assert said in only(
        inspect(saved(hand_written("", "masked = Identity(scores)", x=x)), None), "dimensions", severity
    )


def test_a_mask_whose_keys_are_named_as_the_batch(saved: Make) -> None:
    model = hand_written("bool[batch, batch] m", "u = Unsqueeze(m, mid) masked = Where(u, scores, low)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "mid"))
    assert "named 'batch', as the batch of x is" in only(inspect(saved(model), None), "dimensions")


def test_an_output_that_does_not_follow_the_input(saved: Make) -> None:
    model = hand_written("", "masked = Identity(scores)")
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "items"
    assert "do not follow x" in only(inspect(saved(model), None), "dimensions", "warning")


@pytest.mark.parametrize(
    ("operator", "opset", "axes"),
    [
        ("Softmax", 12, (1, 2, 3)),
        ("LogSoftmax", 12, (1, 2, 3)),
        ("Softmax", 13, (3,)),
        ("LayerNormalization", 17, (3,)),
    ],
)
def test_a_softmax_before_opset_13_runs_along_all_axes_from_the_second_on(
    operator: str, opset: int, axes: tuple[int, ...]
) -> None:
    """The default of its axis was 1, and all axes from it on were one."""
    node = onnx.helper.make_node(operator, ["scores"], ["weights"])
    assert axes_of(node, 4, opset, lambda name: np.zeros(0)) == axes
