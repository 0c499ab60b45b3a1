"""What a file is given, or computes in one operator: angles as inputs, rotations, grouped heads, attention."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from products import thinned
from read_files import edited, errors, layer_of, read

from encoder_conformance import Masks, RunRequest
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.readers.onnx_file.adapter import OnnxFile
from encoder_conformance.readers.onnx_file.inspection import Inspection
from encoder_conformance.spec.layer import Layer

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
D, H, K = 24, 4, 2
d = D // H
OUTPUT = "(float[batch, sequence, 24] output)"
MASKED = "float[batch, sequence, 24] x, bool[batch, sequence] mask"
TABLES = "float[batch, sequence, {0}] cos, float[batch, sequence, {0}] sin"
SPLIT = {"split": np.array([0, 0, H, d]), "root": np.float32(d**0.5)}
QUERY, KEY = "qh = Transpose<perm=[0,2,1,3]>(qr)", "kh = Transpose<perm=[0,2,3,1]>(kr)"


def inspected(
    folder: Path, *edits: tuple[str, str], given: str = MASKED, opset: int = 18, domain: str = "", **constants: Any
) -> Inspection:
    body = edited(PLANTS["PRE"], *edits)
    model = PLANTS["model_of"](body, f"({given}) => {OUTPUT}", opset, **{**SPLIT, **constants})
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
        for node in model.graph.node:
            node.domain = domain if node.op_type == "RotaryEmbedding" else node.domain
    return read(model, folder)


def both(rotation: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Lines that make `?t` of `?p` [B, H, S, d], of query and of key."""
    query, key = (rotation.replace("?", side) for side in "qk")
    return (
        (QUERY, f"qp = Transpose<perm=[0,2,1,3]>(qr)  {query}  qh = Identity(qt)"),
        (KEY, f"kp = Transpose<perm=[0,2,1,3]>(kr)  {key}  kh = Transpose<perm=[0,1,3,2]>(kt)"),
    )


HALVES = """?1, ?2 = Split<axis=-1, num_outputs=2>(?p)  ?n = Neg(?2)  ?s = Concat<axis=-1>(?n, ?1)
 ?cos = Unsqueeze(cos, second)  ?sin = Unsqueeze(sin, second)
 ?c = Mul(?p, ?cos)  ?m = Mul(?s, ?sin)  ?t = Add(?c, ?m)"""
NEIGHBOURS = """?x = Reshape(?p, pairs)  ?1, ?2 = Split<axis=-1, num_outputs=2>(?x)  ?n = Neg(?2)
 ?w = Concat<axis=-1>(?n, ?1)  ?s = Reshape(?w, whole)
 ?cos = Unsqueeze(cos, second)  ?sin = Unsqueeze(sin, second)
 ?c = Mul(?p, ?cos)  ?m = Mul(?s, ?sin)  ?t = Add(?c, ?m)"""
ONCE = """?1, ?2 = Split<axis=-1, num_outputs=2>(?p)  ?cos = Unsqueeze(cos, second)  ?sin = Unsqueeze(sin, second)
 ?a = Mul(?1, ?cos)  ?b_ = Mul(?2, ?sin)  ?d = Sub(?a, ?b_)  ?e = Mul(?1, ?sin)  ?f = Mul(?2, ?cos)  ?g = Add(?e, ?f)
 ?t = Concat<axis=-1>(?d, ?g)"""
HOLDING = {"second": np.array([1]), "pairs": np.array([0, 0, 0, d // 2, 2]), "whole": np.array([0, 0, 0, d])}


@pytest.mark.parametrize(
    ("rotation", "width", "pairing"),
    [(HALVES, d, "halves"), (NEIGHBOURS, d, "interleaved"), (ONCE, d // 2, "halves")],
    ids=("halves", "interleaved", "once"),
)
def test_cosines_and_sines_may_be_inputs(tmp_path: Path, rotation: str, width: int, pairing: str) -> None:
    given = f"{MASKED}, {TABLES.format(width)}"
    seen = inspected(tmp_path, *both(rotation), given=given, **HOLDING)
    layer = layer_of(seen)
    assert layer.attention.rope is not None
    assert (layer.attention.rope.pairing, layer.attention.rope.rotated) == (pairing, None)
    assert seen.interface is not None
    assert seen.interface.x.name == "x"
    [note] = [each for each in seen.findings.found if "no theta is in the file" in each.message]
    assert "'cos' (cos" in note.message


def test_angles_that_are_inputs_are_of_the_theta_that_is_stated(tmp_path: Path) -> None:
    """The file holds none: whoever judges it as a layer gives it that layer's."""
    inspected(tmp_path, *both(HALVES), given=f"{MASKED}, {TABLES.format(d)}", **HOLDING)
    path = str(tmp_path / "model.onnx")
    started = OnnxFile()
    started.choices = {"model": path, "runtime": "onnxruntime", "level": "disable"}
    started.start("cpu", 1)
    reply, own = started.other({"op": "inspect", "path": path, "mask": None}, {})
    described = reply["description"]["layer"]
    assert described["attention"]["rope"]["theta"] == 1e4
    described["attention"]["rope"]["theta"] = 50.0
    started.build(described, own, "float32")
    x = np.random.default_rng(0).normal(size=(2, 9, D)).astype(np.float32)
    layer = Layer.model_validate_json(json.dumps(described))
    held = {name: value.astype(np.float64) for name, value in own.items()}
    due = forward(layer, LayerInputs(x.astype(np.float64), held, None), Arithmetic(np.float64))["output"]
    assert np.abs(started.output(x, Masks(None, None), RunRequest()) - due).max() < 1e-4


def test_inputs_that_no_name_tells_apart_are_taken_as_they_turn(tmp_path: Path) -> None:
    given = f"{MASKED}, {TABLES.format(d)}".replace("cos", "first").replace("sin", "second_")
    body = HALVES.replace("Unsqueeze(cos", "Unsqueeze(first").replace("Unsqueeze(sin", "Unsqueeze(second_")
    assert layer_of(inspected(tmp_path, *both(body), given=given, **HOLDING)).attention.rope is not None


def test_a_sine_in_the_place_of_the_cosine_is_no_layer(tmp_path: Path) -> None:
    exchanged = HALVES.replace("Mul(?p, ?cos)", "Mul(?p, ?sin)").replace("Mul(?s, ?sin)", "Mul(?s, ?cos)")
    given = f"{MASKED}, {TABLES.format(d)}"
    said = errors(inspected(tmp_path, *both(exchanged), given=given, **HOLDING))
    assert "turned by its position otherwise" in said


def test_a_query_that_turns_and_a_key_that_does_not(tmp_path: Path) -> None:
    query, _ = both(HALVES)
    said = errors(inspected(tmp_path, query, given=f"{MASKED}, {TABLES.format(d)}", **HOLDING))
    assert "turned by its position" in said


def test_angles_may_be_an_input(tmp_path: Path) -> None:
    made = "cos = Cos(angles)  sin = Sin(angles)  n1 = "
    given = f"{MASKED}, float[batch, sequence, {d}] angles"
    seen = inspected(tmp_path, ("n1 = ", made), *both(HALVES), given=given, **HOLDING)
    assert layer_of(seen).attention.rope is not None


def test_sines_and_cosines_may_be_one_input(tmp_path: Path) -> None:
    apart = "sin, cos = Split<axis=-1, num_outputs=2>(waves)  n1 = "
    given = f"{MASKED}, float[batch, sequence, {d}] waves"
    seen = inspected(tmp_path, ("n1 = ", apart), *both(ONCE), given=given, **HOLDING)
    assert layer_of(seen).attention.rope is not None


def tables(theta: float = 1e4, rows: int = 600, size: int = d) -> dict[str, Any]:
    angles = np.arange(rows)[:, None] * theta ** (-np.arange(0, size, 2) / size)
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


ROTARY = "?t = RotaryEmbedding{0}(?p, {1})"
PLACED = f"{MASKED}, int64[batch, sequence] places"


@pytest.mark.parametrize(("domain", "size", "interleaved"), thinned(["", "com.microsoft"], [d, 4], [0, 1]))
def test_an_operator_that_turns(tmp_path: Path, domain: str, size: int, interleaved: int) -> None:
    """ONNX's own, and ONNX Runtime's, whose inputs are in another order."""
    inputs = "places, cos, sin" if domain else "cos, sin, places"
    options = f"<interleaved={interleaved}, rotary_embedding_dim={0 if size == d else size}, num_heads={H}>"
    turned = both(ROTARY.format(options, inputs))
    seen = inspected(
        tmp_path, *turned, given=PLACED, opset=18 if domain else 23, domain=domain, **tables(2e4, size=size)
    )
    rope = layer_of(seen).attention.rope
    assert rope is not None
    due = ("interleaved" if interleaved else "halves", 2e4, None if size == d else size)
    assert (rope.pairing, rope.theta, rope.rotated) == due


def test_an_operator_of_flat_queries(tmp_path: Path) -> None:
    """ONNX Runtime's also takes [B, S, H · d]."""
    turned = [
        (f"{side}r = Reshape({side}b, split)",
         f"{side}g = RotaryEmbedding<num_heads={H}>({side}b, places, cos, sin)  {side}r = Reshape({side}g, split)")
        for side in "qk"
    ]  # fmt: skip
    seen = inspected(tmp_path, *turned, given=PLACED, domain="com.microsoft", **tables())
    assert layer_of(seen).attention.rope is not None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("values-too", "after value"),
        ("angles-from-1", "from position 1"),
        ("backwards", "from position 0.*times -1|otherwise"),
    ],
)
def test_an_operator_that_turns_wrongly_is_named(tmp_path: Path, fault: str, says: str) -> None:
    held, turned = tables(), [*both(ROTARY.format(f"<num_heads={H}>", "places, cos, sin"))]
    if fault == "values-too":
        of_value = ROTARY.format("", "places, cos, sin").replace("?", "v")
        plain = "Transpose<perm=[0,2,1,3]>(vr)"
        turned.append((f"vh = {plain}", f"vp = {plain}  {of_value}  vh = Identity(vt)"))
    elif fault == "angles-from-1":
        held = {name: value[1:] for name, value in held.items()}
    else:
        held["sin"] = -held["sin"]
    seen = inspected(tmp_path, *turned, given=PLACED, domain="com.microsoft", **held)
    assert re.search(says, errors(seen))


GROUPS = {
    "Wk": np.random.default_rng(5).normal(size=(D, K * d), scale=0.3).astype(np.float32),
    "bk": np.random.default_rng(6).normal(size=K * d, scale=0.3).astype(np.float32),
    "Wv": np.random.default_rng(7).normal(size=(D, K * d), scale=0.3).astype(np.float32),
    "bv": np.random.default_rng(8).normal(size=K * d, scale=0.3).astype(np.float32),
    "shared": np.array([0, 0, K, d]), "grouped": np.array([0, 0, K, H // K, d]),
    "tiled": np.array([0, 0, H // K, K, d]), "third": np.array([2]),
}  # fmt: skip
MASKING = "keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)"
SHARED = ("kr = Reshape(kb, split)  vr = Reshape(vb, split)", "kr = Reshape(kb, shared)  vr = Reshape(vb, shared)")


def grouped(equation: str, back: str, split: str) -> list[tuple[str, str]]:
    """Scores and context by Einsum over five axes, of queries in groups."""
    return [
        SHARED,
        ("qr = Reshape(qb, split)", f"qr = Reshape(qb, {split})"),
        (QUERY, "qh = Identity(qr)"),
        (KEY, "kh = Transpose<perm=[0,2,1,3]>(kr)"),
        ("raw = MatMul(qh, kh)", f'raw = Einsum<equation="{equation}">(qh, kh)'),
        (MASKING, "keys = Unsqueeze(mask, inner)  masked = Where(keys, scores, low)"),
        ("c = MatMul(w, vh)  ct = Transpose<perm=[0,2,1,3]>(c)", f'ct = Einsum<equation="{back}">(w, vh)'),
    ]


def test_groups_by_einsum(tmp_path: Path) -> None:
    edits = grouped("bqkgd,bksd->bkgqs", "bkgqs,bksd->bqkgd", "grouped")
    layer = layer_of(inspected(tmp_path, *edits, inner=np.array([1, 2, 3]), **GROUPS))
    assert layer.attention.kv_heads == K


def test_groups_by_einsum_in_another_order_are_named(tmp_path: Path) -> None:
    """Heads of queries that lie K apart share a key: tiled, and not repeated."""
    edits = grouped("bqgkd,bksd->bkgqs", "bkgqs,bksd->bqgkd", "tiled")
    said = errors(inspected(tmp_path, *edits, inner=np.array([1, 2, 3]), **GROUPS))
    assert "otherwise than in groups of neighbours" in said


def broadcast(split: str) -> list[tuple[str, str]]:
    """Scores and context of five axes, of keys and values that a product broadcasts."""
    axis = "third" if split == "grouped" else "second"
    order = "[0,2,3,1,4]"
    return [
        SHARED,
        ("qr = Reshape(qb, split)", f"qr = Reshape(qb, {split})"),
        (QUERY, f"qh = Transpose<perm={order}>(qr)"),
        (KEY, f"k4 = Transpose<perm=[0,2,3,1]>(kr)  kh = Unsqueeze(k4, {axis})"),
        ("vh = Transpose<perm=[0,2,1,3]>(vr)", f"v4 = Transpose<perm=[0,2,1,3]>(vr)  vh = Unsqueeze(v4, {axis})"),
        (MASKING, "keys = Unsqueeze(mask, inner)  masked = Where(keys, scores, low)"),
        ("ct = Transpose<perm=[0,2,1,3]>(c)", "ct = Transpose<perm=[0,3,1,2,4]>(c)"),
    ]


def test_groups_by_broadcasting(tmp_path: Path) -> None:
    held = {"inner": np.array([1, 2, 3]), "second": np.array([1]), **GROUPS}
    assert layer_of(inspected(tmp_path, *broadcast("grouped"), **held)).attention.kv_heads == K
    said = errors(inspected(tmp_path, *broadcast("tiled"), **held))
    assert "otherwise than in groups of neighbours" in said


@pytest.mark.parametrize("tiled", [False, True])
def test_groups_by_expand(tmp_path: Path, tiled: bool) -> None:
    """Each head of keys and values expanded beside itself, or all of them one after the other."""
    axis, times = (2, [1, 1, H // K, 1, 1]) if not tiled else (1, [1, H // K, 1, 1, 1])
    lines = (
        "{0}4 = Transpose<perm=[0,2,1,3]>({0}r)  {0}5 = Unsqueeze({0}4, axis)  {0}6 = Expand({0}5, times)  "
        "{0}7 = Reshape({0}6, all)"
    )
    edits = [
        SHARED,
        (KEY, f"{lines.format('k')}  kh = Transpose<perm=[0,1,3,2]>(k7)"),
        ("vh = Transpose<perm=[0,2,1,3]>(vr)", f"{lines.format('v')}  vh = Identity(v7)"),
    ]
    held = {"axis": np.array([axis]), "times": np.array(times), "all": np.array([0, H, -1, d]), **GROUPS}
    seen = inspected(tmp_path, *edits, **held)
    if tiled:
        assert "otherwise than in groups of neighbours" in errors(seen)
    else:
        assert layer_of(seen).attention.kv_heads == K
