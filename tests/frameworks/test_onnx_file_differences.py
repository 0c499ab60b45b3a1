"""Steps that a layer may leave out are read off a file; in another order than the plan's they are named."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.spec.layer import Layer

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
D, H, S = 24, 3, 5
d = D // H
FIXED = "(float[batch, 5, 24] x) => (float[batch, 5, 24] output)"
QUERY, KEY = "qh = Transpose<perm=[0,2,1,3]>(qr)", "kh = Transpose<perm=[0,2,3,1]>(kr)"
OUTPUT = "r1 = Add(x, ob)"
UNMASKED = (
    ("keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)", "masked = Identity(scores)"),
)  # fmt: skip


def inspected(
    folder: Path, *edits: tuple[str, str], batch: str = "batch", opset: int = 18, **constants: Any
) -> Inspection:
    body = PLANTS["PRE"]
    for old, new in (*UNMASKED, *edits):
        assert old in body, old
        body = body.replace(old, new)
    model = PLANTS["model_of"](body, FIXED.replace("batch", batch), opset, **constants)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return inspect(path, None, thoroughly=False)


def errors(folder: Path, *edits: tuple[str, str], **given: Any) -> list[str]:
    """What is said of the layer after the sentence that all begin with."""
    found = inspected(folder, *edits, **given).findings.errors("layer")
    return [each.message.partition("knows it: ")[2] or each.message for each in found]


def layer_of(folder: Path, *edits: tuple[str, str], **given: Any) -> Layer:
    """The layer that is read; its parameters have the shapes of the layer's, or there were an error."""
    seen = inspected(folder, *edits, **given)
    assert seen.findings.errors("layer") == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    return seen.inferred.layer


def table(theta: float, size: int, repeats: str, first: int = 0) -> dict[str, Any]:
    """cos and sin [S, size] of each position's angles, as they stand beside halves or interleaved pairs."""
    angles = (first + np.arange(S))[:, None] * theta ** (-np.arange(0, size, 2) / size)
    spread = np.tile(angles, 2) if repeats == "halves" else np.repeat(angles, 2, -1)
    return {"cos": np.cos(spread).astype(np.float32), "sin": np.sin(spread).astype(np.float32)}


def halves(side: str, size: int = d, out: str = "", of: str = "") -> str:
    """[B, H, S, size] turned: x · cos + (−x₂, x₁) · sin."""
    of, out = of or f"{side}p", out or f"{side}t"
    return f"""{side}1, {side}2 = Split<axis=-1, num_outputs=2>({of})  {side}n = Neg({side}2)
     {side}s = Concat<axis=-1>({side}n, {side}1)  {side}c = Mul({of}, cos)  {side}m = Mul({side}s, sin)
     {out} = Add({side}c, {side}m)"""


def turned_query(rotation: str) -> tuple[str, str]:
    return QUERY, f"qp = Transpose<perm=[0,2,1,3]>(qr)  {rotation}  qh = Identity(qt)"


def turned_key(rotation: str) -> tuple[str, str]:
    return KEY, f"kp = Transpose<perm=[0,2,1,3]>(kr)  {rotation}  kh = Transpose<perm=[0,1,3,2]>(kt)"


def both(of_query: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """What is done with the query, done with the key too."""
    return turned_query(of_query), turned_key(re.sub(r"\bq(\w*)", r"k\1", of_query))


INTERLEAVED = """qx = Reshape(qp, pairs)  q1, q2 = Split<axis=-1, num_outputs=2>(qx)  qn = Neg(q2)
 qw = Concat<axis=-1>(qn, q1)  qs = Reshape(qw, whole)  qc = Mul(qp, cos)  qm = Mul(qs, sin)  qt = Add(qc, qm)"""
PARTIAL = f"qa, qb_ = Split<axis=-1>(qp, parts)  {halves('q', of='qa', out='qe')}  qt = Concat<axis=-1>(qe, qb_)"
SHAPES = {"pairs": np.array([0, 0, 0, d // 2, 2]), "whole": np.array([0, 0, 0, d]), "parts": np.array([4, 4])}
ROPE = "query or key is turned by its position otherwise than rotary positions (E-22) are"


@pytest.mark.parametrize(
    ("rotation", "constants", "read"),
    [
        (halves("q"), table(1e4, d, "halves"), ("halves", 1e4, None)),
        (INTERLEAVED, table(2e4, d, "interleaved"), ("interleaved", 2e4, None)),
        (PARTIAL, table(1e3, 4, "halves"), ("halves", 1e3, 4)),
        (
            halves("q", out="qf") + " qt = Mul(qf, fourth)",
            {**table(1e4, d, "halves"), "fourth": np.float32(0.25)},
            ("halves", 1e4, None),
        ),
    ],
)
def test_a_rotation_is_read_by_its_values(
    tmp_path: Path, rotation: str, constants: dict[str, Any], read: tuple[str, float, int | None]
) -> None:
    rope = layer_of(tmp_path, *both(rotation), **constants, **SHAPES).attention.rope
    assert rope is not None
    assert (rope.pairing, rope.theta, rope.rotated) == read


def test_the_operator_is_a_rotation_as_any_other(tmp_path: Path) -> None:
    angles = {name: np.stack([value[:, : d // 2]] * 2) for name, value in table(1e4, d, "halves").items()}
    turned = both("qt = RotaryEmbedding(qp, cos, sin)")
    rope = layer_of(tmp_path, *turned, batch="2", opset=23, **angles).attention.rope
    assert rope is not None
    assert (rope.pairing, rope.theta, rope.rotated) == ("halves", 1e4, None)


def test_a_rotation_of_a_part_of_one_map_of_all_three(tmp_path: Path) -> None:
    """Query, key and value in one product: the rotation is that of the query's features alone."""
    three = """all = MatMul(n1, Wall)  qb, kb, vb = Split<axis=-1, num_outputs=3>(all)"""
    apart = (
        "q = MatMul(n1, Wq)  qb = Add(q, bq)  k = MatMul(n1, Wk)  kb = Add(k, bk)  v = MatMul(n1, Wv)  vb = Add(v, bv)"
    )
    weight = np.random.default_rng(0).normal(size=(D, 3 * D)).astype(np.float32)
    layer = layer_of(tmp_path, (apart, three), *both(halves("q")), **table(1e4, d, "halves"), Wall=weight)
    assert layer.attention.rope is not None
    assert not layer.attention.qkv_bias


def test_query_and_key_are_one_finding_and_a_gate_another(tmp_path: Path) -> None:
    """Of both maps of a gate there is one activated, and positions begin at 0."""
    gate = ("f = MatMul(a, W2)", "gate = MatMul(n2, W1)  two = Relu(gate)  gated = Mul(a, two)  f = MatMul(gated, W2)")
    rope, gated = errors(tmp_path, *both(halves("q")), gate, **table(1e4, d, "halves", 2))
    assert "(halves, all 8 features, theta 10000, from position 2) after query and key, first at" in rope
    assert "multiplies two maps otherwise than a gated one does" in gated


GATES = (
    "gate = MatMul(n2, W1)  gated = Mul(a, gate)  f = MatMul(gated, W2)",
    "gate = MatMul(n2, W1)  gated = Mul(gate, a)  f = MatMul(gated, W2)",
)


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_is_the_side_that_is_activated(tmp_path: Path, gate: str) -> None:
    """The gate has a bias here, and the hidden map has none."""
    feed_forward = layer_of(tmp_path, ("f = MatMul(a, W2)", gate)).feed_forward
    assert feed_forward.gated
    assert (feed_forward.bias, feed_forward.gate_bias, feed_forward.hidden_bias) == (True, None, False)


NORMED = "qn = LayerNormalization<axis=-1>(qp, gh)"
MEAN_SQUARE = """qq = Mul(qp, qp)  qv = ReduceMean<keepdims=1>(qq, last)  qe = Add(qv, tiny)  qi = Sqrt(qe)
 qd = Div(qp, qi)  qn = Mul(qd, gh)"""
GAINS = {"gh": np.linspace(0.5, 1.5, d, dtype=np.float32), "last": np.array([-1]), "tiny": np.float32(1e-5)}
QK_NORM = "query and key are normed before their product otherwise than by qk-norm"


@pytest.mark.parametrize(("norm", "kind"), [(NORMED, "layer_norm"), (MEAN_SQUARE, "rms_norm")])
def test_a_norm_over_each_head_and_a_rotation_after_it(tmp_path: Path, norm: str, kind: str) -> None:
    rotation = f"{norm}  {halves('qz', of='qn', out='qt')}"
    attention = layer_of(tmp_path, *both(rotation), **table(1e4, d, "halves"), **GAINS).attention
    assert attention.rope is not None
    assert attention.qk_norm is not None
    assert (attention.qk_norm.kind, attention.qk_norm.over, attention.qk_norm.shift) == (kind, "head", False)


def test_a_norm_over_all_heads(tmp_path: Path) -> None:
    edits = [
        (
            f"{side}r = Reshape({side}b, split)",
            f"{side}g = LayerNormalization<axis=-1>({side}b, s2)  {side}r = Reshape({side}g, split)",
        )
        for side in "qk"
    ]
    chosen = layer_of(tmp_path, *edits).attention.qk_norm
    assert chosen is not None
    assert (chosen.kind, chosen.over, chosen.shift) == ("layer_norm", "all", False)


def test_query_alone_has_a_norm(tmp_path: Path) -> None:
    [found] = errors(tmp_path, turned_query(f"{NORMED}  qt = Identity(qn)"), **GAINS)
    assert found == f"{QK_NORM} (E-27) (query alone is normed, and E-27 norms both or none)"


def test_a_rotation_before_the_norm_is_named_so(tmp_path: Path) -> None:
    rotation = f"{halves('q', out='qo')}  qt = LayerNormalization<axis=-1>(qo, gh)"
    [found] = errors(tmp_path, *both(rotation), **table(1e4, d, "halves"), **GAINS)
    assert found.startswith(f"{QK_NORM} (E-27): turned by position first (a rotation by position")
    assert "theta 10000) before the norm, after query and key, first at" in found


def test_what_only_rearranges_or_scales_is_none(tmp_path: Path) -> None:
    """The same permutation of query's and key's features, and a factor: the layer is read as before."""
    swap = "{0}1, {0}2 = Split<axis=-1, num_outputs=2>({0}p)  {0}t = Concat<axis=-1>({0}2, {0}1)"
    assert errors(tmp_path, turned_query(swap.format("q")), turned_key(swap.format("k"))) == []


def test_gains_are_layer_scales_of_their_sub_layers(tmp_path: Path) -> None:
    ends = ("output = Add(r1, fb)", "fs = Mul(fb, c2)  output = Add(r1, fs)")
    assert layer_of(tmp_path, (OUTPUT, "os = Mul(ob, s2)  r1 = Add(x, os)"), ends).layer_scale == (
        "attention",
        "feed_forward",
    )
    assert layer_of(tmp_path, ends).layer_scale == ("feed_forward",)


@pytest.mark.parametrize("number", [1.0, 0.1])
def test_gains_that_are_one_number_are_gains(tmp_path: Path, number: float) -> None:
    """As models have them before they are trained."""
    edit = OUTPUT, "os = Mul(ob, ones)  r1 = Add(x, os)"
    layer = layer_of(tmp_path, edit, ones=np.full(D, number, np.float32))
    assert (layer.layer_scale, layer.residual_scale) == (("attention",), 1.0)


def test_numbers_before_both_sums_are_one(tmp_path: Path) -> None:
    half = {"half": np.float32(0.5)}
    ends = ("output = Add(r1, fb)", "fs = Mul(fb, half)  output = Add(r1, fs)")
    both_sums = (OUTPUT, "os = Mul(half, ob)  r1 = Add(x, os)"), ends
    assert layer_of(tmp_path, *both_sums, **half).residual_scale == 0.5
    [found] = errors(tmp_path, ends, **half)
    assert found == "the two residual sums weigh their branches otherwise: attention_output by 1 and ffn_output by 0.5"


SANDWICHED = (OUTPUT, "os = LayerNormalization<axis=-1>(ob, s2)  r1 = Add(x, os)")
SANDWICH_ENDS = ("output = Add(r1, fb)", "fs = LayerNormalization<axis=-1>(fb, s2)  output = Add(r1, fs)")


def test_norms_before_and_after_each_sub_layer(tmp_path: Path) -> None:
    assert layer_of(tmp_path, SANDWICHED, SANDWICH_ENDS).norm.placement == "sandwich"
    [found] = errors(tmp_path, SANDWICHED)
    assert "a norm stands after a sub-layer, and not before and after each (sandwich norms, E-25)" in found


def test_no_norm_before_the_first_sub_layer(tmp_path: Path) -> None:
    apart = [(f"{side} = MatMul(n1, W{side})", f"{side} = MatMul(x, W{side})") for side in "qkv"]
    assert not layer_of(tmp_path, *apart).norm.first


def test_heads_that_share_keys_and_are_no_neighbours(tmp_path: Path) -> None:
    key = (KEY, "ka = Transpose<perm=[0,2,3,1]>(kr)  kh = Gather<axis=1>(ka, shared)")
    value = (
        "vh = Transpose<perm=[0,2,1,3]>(vr)",
        "va = Transpose<perm=[0,2,1,3]>(vr)  vh = Gather<axis=1>(va, shared)",
    )
    found = errors(tmp_path, key, value, shared=np.array([0, 1, 0]))
    assert any("otherwise than in groups of neighbours" in each for each in found)


def test_heads_that_are_mixed_are_named(tmp_path: Path) -> None:
    mixed = "wt = Transpose<perm=[0,2,3,1]>(w)  wm = MatMul(wt, mix)  wh = Transpose<perm=[0,3,1,2]>(wm)"
    mix = np.array([[1, 0.5, 0], [0, 1, 0.5], [0.25, 0, 1]], np.float32)
    [found] = errors(tmp_path, ("c = MatMul(w, vh)", f"{mixed}  c = MatMul(wh, vh)"), mix=mix)
    assert "as talking heads are" in found


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("c = MatMul(w, vh)", "c0 = MatMul(w, vh)  c = LayerNormalization<axis=-1>(c0, gh)"),
         "the layer language has no key for what it does (a norm (layer_norm, over each 8 features) after"),
        (("qr = Reshape(qb, split)", "qg = Mul(qb, s2)  qr = Reshape(qg, split)"),
         "the layer language has no key for what it does (a gain by feature after query, first at 'qh')"),
        (("vr = Reshape(vb, split)", "v0 = LayerNormalization<axis=-1>(vb, s2)  vr = Reshape(v0, split)"),
         "the layer language has no key for what it does (a norm (layer_norm) after value, first at 'vh')"),
        (("h = MatMul(n2, W1)", "h = MatMul(r1, W1)"), "no norm as norm2, first at 'r1'"),
        (("v = MatMul(n1, Wv)", "v = MatMul(x, Wv)"), "some of query, key and value read x, and some its norm"),
    ],
)  # fmt: skip
def test_what_the_layer_language_has_no_key_for_is_named(tmp_path: Path, edit: tuple[str, str], said: str) -> None:
    found = errors(tmp_path, edit, **GAINS)
    assert any(said in each for each in found), found
