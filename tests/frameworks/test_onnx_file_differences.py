"""What a file has beside the plan of a layer is taken off and named: rotations, gains, norms, gates, shared heads."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.readers.onnx_file.inspection import inspect

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
D, H, S = 24, 3, 5
d = D // H
FIXED = "(float[batch, 5, 24] x) => (float[batch, 5, 24] output)"
QUERY, KEY = "qh = Transpose<perm=[0,2,1,3]>(qr)", "kh = Transpose<perm=[0,2,3,1]>(kr)"
OUTPUT = "r1 = Add(x, ob)"
UNMASKED = (
    ("keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)", "masked = Identity(scores)"),
)  # fmt: skip


def errors(folder: Path, *edits: tuple[str, str], batch: str = "batch", opset: int = 18, **constants: Any) -> list[str]:
    """What is said of the layer after the sentence that all begin with."""
    body = PLANTS["PRE"]
    for old, new in (*UNMASKED, *edits):
        assert old in body, old
        body = body.replace(old, new)
    model = PLANTS["model_of"](body, FIXED.replace("batch", batch), opset, **constants)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    seen = inspect(path, None, thoroughly=False)
    return [f.message.partition("knows it: ")[2] or f.message for f in seen.findings.errors("layer")]


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


INTERLEAVED = """qx = Reshape(qp, pairs)  q1, q2 = Split<axis=-1, num_outputs=2>(qx)  qn = Neg(q2)
 qw = Concat<axis=-1>(qn, q1)  qs = Reshape(qw, whole)  qc = Mul(qp, cos)  qm = Mul(qs, sin)  qt = Add(qc, qm)"""
PARTIAL = f"qa, qb_ = Split<axis=-1>(qp, parts)  {halves('q', of='qa', out='qe')}  qt = Concat<axis=-1>(qe, qb_)"
SHAPES = {"pairs": np.array([0, 0, 0, d // 2, 2]), "whole": np.array([0, 0, 0, d]), "parts": np.array([4, 4])}
ROPE = "rotary positions (RoPE) turn query and key before their product; the specification has none"


@pytest.mark.parametrize(
    ("rotation", "constants", "said"),
    [
        (halves("q"), table(1e4, d, "halves"), "halves, all 8 features, theta 10000"),
        (halves("q"), table(1e6, d, "halves", 2), "halves, all 8 features, theta 1e+06, from position 2"),
        (INTERLEAVED, table(2e4, d, "interleaved"), "interleaved, all 8 features, theta 20000"),
        (PARTIAL, table(1e3, 4, "halves"), "halves, 4 of 8 features, theta 1000"),
        (
            halves("q", out="qf") + " qt = Mul(qf, quarter)",
            {**table(1e4, d, "halves"), "quarter": np.float32(0.25)},
            "halves, all 8 features, theta 10000",
        ),
    ],
)
def test_a_rotation_is_read_by_its_values(tmp_path: Path, rotation: str, constants: dict[str, Any], said: str) -> None:
    [found] = errors(tmp_path, turned_query(rotation), **constants, **SHAPES)
    assert found == f"{ROPE} (a rotation by position ({said}) after query, first at 'qh')"


def test_the_operator_is_a_rotation_as_any_other(tmp_path: Path) -> None:
    angles = {name: np.stack([value[:, : d // 2]] * 2) for name, value in table(1e4, d, "halves").items()}
    turned = turned_query("qt = RotaryEmbedding(qp, cos, sin)")
    [found] = errors(tmp_path, turned, batch="2", opset=23, **angles)
    assert "(halves, all 8 features, theta 10000) after query" in found


def test_a_rotation_of_a_part_of_one_map_of_all_three(tmp_path: Path) -> None:
    """Query, key and value in one product: the rotation is that of the query's features alone."""
    three = """all = MatMul(n1, Wall)  qb, kb, vb = Split<axis=-1, num_outputs=3>(all)"""
    apart = (
        "q = MatMul(n1, Wq)  qb = Add(q, bq)  k = MatMul(n1, Wk)  kb = Add(k, bk)  v = MatMul(n1, Wv)  vb = Add(v, bv)"
    )
    weight = np.random.default_rng(0).normal(size=(D, 3 * D)).astype(np.float32)
    turned = turned_query(halves("q")), turned_key(halves("k"))
    [found] = errors(tmp_path, (apart, three), *turned, **table(1e4, d, "halves"), Wall=weight)
    assert "(halves, all 8 features, theta 10000) after query and key, first at" in found


def test_query_and_key_are_one_finding_and_a_gate_another(tmp_path: Path) -> None:
    gate = ("f = MatMul(a, W2)", "gate = MatMul(n2, W1)  gated = Mul(a, gate)  f = MatMul(gated, W2)")
    turned = turned_query(halves("q")), turned_key(halves("k"))
    rope, gated = errors(tmp_path, *turned, gate, **table(1e4, d, "halves"))
    assert "(halves, all 8 features, theta 10000) after query and key, first at" in rope
    assert "the feed-forward network is gated (GLU)" in gated


NORMED = "qn = LayerNormalization<axis=-1>(qp, gh)"
MEAN_SQUARE = """qq = Mul(qp, qp)  qv = ReduceMean<keepdims=1>(qq, last)  qe = Add(qv, tiny)  qi = Sqrt(qe)
 qd = Div(qp, qi)  qn = Mul(qd, gh)"""
GAINS = {"gh": np.linspace(0.5, 1.5, d, dtype=np.float32), "last": np.array([-1]), "tiny": np.float32(1e-6)}
QK_NORM = "query or key is normed before their product (qk-norm); the specification has no such norm"


@pytest.mark.parametrize(("norm", "kind"), [(NORMED, "layer_norm"), (MEAN_SQUARE, "rms_norm")])
def test_a_norm_over_each_head_and_a_rotation_after_it(tmp_path: Path, norm: str, kind: str) -> None:
    rotation = f"{norm}  {halves('t', of='qn', out='qt')}"
    found = errors(tmp_path, turned_query(rotation), **table(1e4, d, "halves"), **GAINS)
    assert found == [
        f"{QK_NORM} (a norm ({kind}, over each 8 features) after query, first at 'qn')",
        f"{ROPE} (a rotation by position (halves, all 8 features, theta 10000) after query, first at 'qh')",
    ]


def test_a_rotation_before_the_norm_is_named_so(tmp_path: Path) -> None:
    rotation = f"{halves('q', out='qo')}  qt = LayerNormalization<axis=-1>(qo, gh)"
    found = errors(tmp_path, turned_query(rotation), **table(1e4, d, "halves"), **GAINS)
    assert "theta 10000) before the norm, after query" in found[0]
    assert QK_NORM in found[1]


def test_what_only_rearranges_or_scales_is_none(tmp_path: Path) -> None:
    """The same permutation of query's and key's features, and a factor: the layer is read as before."""
    swap = "{0}1, {0}2 = Split<axis=-1, num_outputs=2>({0}p)  {0}t = Concat<axis=-1>({0}2, {0}1)"
    assert errors(tmp_path, turned_query(swap.format("q")), turned_key(swap.format("k"))) == []


def test_gains_after_both_sublayers_are_one_finding(tmp_path: Path) -> None:
    ends = ("output = Add(r1, fb)", "fs = Mul(fb, c2)  output = Add(r1, fs)")
    [found] = errors(tmp_path, (OUTPUT, "os = Mul(ob, s2)  r1 = Add(x, os)"), ends)
    assert "a layer scale multiplies each feature" in found
    assert "a gain by feature after attention_output and ffn_output, first at 'os'" in found


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("c = MatMul(w, vh)", "c0 = MatMul(w, vh)  c = LayerNormalization<axis=-1>(c0, gh)"),
         "a norm (layer_norm, over each 8 features) after context, first at 'cm': the layer language has no key"),
        (("qr = Reshape(qb, split)", "qg = Mul(qb, s2)  qr = Reshape(qg, split)"),
         "a gain by feature after query, first at 'qh': the layer language has no key for it"),
        (("h = MatMul(n2, W1)", "h = MatMul(r1, W1)"), "no norm as norm2, first at 'r1'"),
        (("v = MatMul(n1, Wv)", "v = MatMul(x, Wv)"), "taken for query and key"),
    ],
)  # fmt: skip
def test_what_the_layer_language_has_no_key_for_is_named(tmp_path: Path, edit: tuple[str, str], said: str) -> None:
    found = errors(tmp_path, edit, **GAINS)
    assert any(said in each for each in found), found
