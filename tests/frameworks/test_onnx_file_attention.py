"""Attention as the operator of opset 23 to 25, and masks that a file makes itself."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from products import of_a_release
from read_files import edited, errors, layer_of, read

from encoder_conformance.impls.bases.onnx_model.contract import finish
from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded
from encoder_conformance.impls.onnx_attention.adapter import OnnxAttention
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.readers.onnx_file.inspection import Inspection
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load, published_layers

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
D, H, K = 24, 4, 2
d = D // H
MASKED = "float[batch, sequence, 24] x, bool[batch, 1, sequence, sequence] mask"
OPERATOR = "c = Attention<q_num_heads=3, kv_num_heads=3>(qb, kb, vb, mask)"
GROUPS = {
    name: np.random.default_rng(number).normal(size=size, scale=0.3).astype(np.float32)
    for number, (name, size) in enumerate({"Wk": (D, K * d), "bk": (K * d,), "Wv": (D, K * d), "bv": (K * d,)}.items())
}


def inspected(
    folder: Path, *edits: tuple[str, str], given: str = MASKED, opset: int = 23, right: str = "ATTENTION", **held: Any
) -> Inspection:
    body = edited(PLANTS[right], *edits)
    model = PLANTS["model_of"](body, f"({given}) => (float[batch, sequence, 24] output)", opset, **held)
    return read(model, folder)


def operator(attributes: str, inputs: str = "qb, kb, vb, mask", outputs: str = "c") -> tuple[str, str]:
    return OPERATOR, f"{outputs} = Attention<{attributes}>({inputs})"


def test_fewer_heads_of_keys(tmp_path: Path) -> None:
    chosen = operator(f"q_num_heads={H}, kv_num_heads={K}")
    assert layer_of(inspected(tmp_path, chosen, **GROUPS)).attention.kv_heads == K


def test_one_head_of_keys(tmp_path: Path) -> None:
    held = {name: value[..., :d] for name, value in GROUPS.items()}
    chosen = operator(f"q_num_heads={H}, kv_num_heads=1")
    assert layer_of(inspected(tmp_path, chosen, **held)).attention.kv_heads == 1


@pytest.mark.parametrize(
    ("attributes", "key", "value"),
    [
        ("scale=0.25", "scale", 16.0),
        ("softcap=3.0", "softcap", 3.0),
        ("scale=1.0, softcap=20.0", "softcap", 20.0),
    ],
)
def test_attributes_of_the_operator(tmp_path: Path, attributes: str, key: str, value: float) -> None:
    """A cap is asked without a mask: what becomes of one is another test."""
    given = "float[batch, sequence, 24] x" if "softcap" in attributes else MASKED
    inputs = "qb, kb, vb" if "softcap" in attributes else "qb, kb, vb, mask"
    unbiased = [(f"{side}b = Add({side}, b{side})", f"{side}b = Identity({side})") for side in "qk"]
    chosen = operator(f"q_num_heads={H}, kv_num_heads={H}, {attributes}", inputs)
    assert getattr(layer_of(inspected(tmp_path, chosen, *unbiased, given=given)).attention, key) == value


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_what_the_operator_shows_beside_changes_nothing(tmp_path: Path, mode: int) -> None:
    shown = operator(f"q_num_heads={H}, kv_num_heads={H}, qk_matmul_output_mode={mode}", outputs='c, "", "", shown')
    assert layer_of(inspected(tmp_path, shown)).attention.num_heads == H


def test_an_operator_that_is_causal_is_said(tmp_path: Path) -> None:
    chosen = operator(f"q_num_heads={H}, kv_num_heads={H}, is_causal=1", "qb, kb, vb")
    said = errors(inspected(tmp_path, chosen, given="float[batch, sequence, 24] x"))
    assert "no position sees a later one: a causal mask is built into the file" in said


def test_keys_that_are_counted_are_refused_by_name(tmp_path: Path) -> None:
    chosen = operator(f"q_num_heads={H}, kv_num_heads={H}", 'qb, kb, vb, "", "", "", lengths')
    said = errors(inspected(tmp_path, chosen, given="float[batch, sequence, 24] x, int64[batch] lengths", opset=24))
    assert "nonpad_kv_seqlen" in said


CAPPED = "shares = Div(scores, cap)  bent = Tanh(shares)  capped = Mul(bent, cap)"
MASKING = "keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)"
PADDED = MASKED.replace("batch, 1, sequence, sequence", "batch, sequence")


def test_a_cap_before_the_mask_is_one_and_after_it_is_accused(tmp_path: Path) -> None:
    before = (MASKING, f"{CAPPED}  {MASKING.replace('scores', 'capped')}")
    after = (MASKING, f"{MASKING}  {CAPPED.replace('scores', 'masked')}")
    held = {"cap": np.float32(5)}
    given = {"given": PADDED, "opset": 18, "right": "PRE"}
    assert layer_of(inspected(tmp_path, before, **given, **held)).attention.softcap == 5.0
    said = errors(inspected(tmp_path, after, ("Softmax<axis=-1>(masked)", "Softmax<axis=-1>(capped)"), **given, **held))
    assert "hides a position in part" in said or "hides it from no other" in said


def test_weights_too_small_for_their_format_are_hidden_by_nothing(tmp_path: Path) -> None:
    """Of scores hundreds apart a softmax in float32 is 0 at most places, at others of every x."""
    large = np.random.default_rng(5).normal(size=(D, D), scale=40).astype(np.float32)
    given = {"given": PADDED, "opset": 18, "right": "PRE"}
    attention = layer_of(inspected(tmp_path, Wq=large, **given)).attention
    assert attention.window is None
    # what hides each position from itself is no rounding
    sized = f"{NEAR}  own = Equal(apart, zero)  alone = Where(own, low, scores)  keys = "
    hidden = (("keys = ", sized), ("Where(keys, scores, low)", "Where(keys, alone, low)"))
    assert "own key" in errors(inspected(tmp_path, *hidden, Wq=large / 40, **given, **NUMBERS))


NEAR = """size = Shape<start=1, end=2>(x)  count = Squeeze(size)  places = Range(zero, count, unit)
 rows = Unsqueeze(places, last)  apart = Sub(places, rows)"""
WINDOW = f"""{NEAR}  from_left = GreaterOrEqual(apart, before)  from_right = LessOrEqual(apart, after)
 near = And(from_left, from_right)"""
NUMBERS = {"zero": np.array(0), "unit": np.array(1), "last": np.array([-1])}


def window(left: int, right: int) -> dict[str, Any]:
    return {**NUMBERS, "before": np.array(-left), "after": np.array(right)}


@pytest.mark.parametrize(
    "masking",
    [
        "keys = Unsqueeze(mask, middle)  both = And(keys, near)  masked = Where(both, scores, low)",
        "keys = Unsqueeze(mask, middle)  both = And(keys, near)  added = Where(both, none, low)"
        "  masked = Add(scores, added)",
    ],
    ids=("where", "added"),
)
@pytest.mark.parametrize(("left", "right"), [(2, 2), (3, 1)])
def test_a_window_that_the_file_makes(tmp_path: Path, masking: str, left: int, right: int) -> None:
    edit = MASKING, f"{WINDOW}  {masking}"
    given = {"given": PADDED, "opset": 18, "right": "PRE", "none": np.float32(0), **window(left, right)}
    chosen = layer_of(inspected(tmp_path, edit, **given)).attention.window
    assert chosen is not None
    assert (chosen.left, chosen.right) == (left, right)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        pytest.param("Equal(apart, zero)", "each position is hidden from itself", id="itself"),
        pytest.param("Greater(again, zero)", "by a pattern of its own", id="every other"),
    ],
)
def test_keys_that_are_hidden_by_no_window_are_refused_by_name(tmp_path: Path, pattern: str, name: str) -> None:
    """A query does not see itself, or sees every other key."""
    masking = f"again = Mod(apart, two)  hidden = {pattern}  near = Not(hidden)  keys = Unsqueeze(mask, middle)"
    edit = MASKING, f"{NEAR}  {masking}  both = And(keys, near)  masked = Where(both, scores, low)"
    said = errors(inspected(tmp_path, edit, given=PADDED, opset=18, right="PRE", two=np.array(2), **NUMBERS))
    assert name in said


def test_numbers_of_the_distance_that_are_no_buckets_are_refused_by_name(tmp_path: Path) -> None:
    """ALiBi: a slope for each head, times the distance."""
    alibi = (
        f"{NEAR}  far = Abs(apart)  number = Cast<to=1>(far)  slope = Mul(number, slopes)  sloped = Add(scores, slope)"
    )
    edit = MASKING, f"{alibi}  {MASKING.replace('scores', 'sloped')}"
    slopes = (-(2.0 ** -np.arange(1, 4))).astype(np.float32).reshape(3, 1, 1)
    said = errors(inspected(tmp_path, edit, given=PADDED, opset=18, right="PRE", slopes=slopes, **NUMBERS))
    assert "numbers by distance are added to the scores, of neither a table by buckets (E-23) nor ALiBi (E-43)" in said


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("pre-qk-norm-capped", {"Attention"}),
        of_a_release("eurobert", {"Attention", "RMSNormalization", "RotaryEmbedding"}),
        of_a_release("qwen3", {"Attention", "RMSNormalization", "RotaryEmbedding"}),
        of_a_release("roformer", {"Attention", "RotaryEmbedding"}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_layer_by_operators_alone_is_read_as_it_was_written(name: str, operators: set[str], tmp_path: Path) -> None:
    """A cap, rotations of halves and of neighbours, and the operator's own groups of heads."""
    layer = {**load().layers, **published_layers()}[name]
    described = layer.model_dump(mode="json")
    held = {each: value.astype(np.float32) for each, value in layer_parameters(layer, {}).items()}
    model = OnnxAttention().export(described, held, "float32", 24, biased=False)
    model = padded(deployed(finish(model, described, held, exporter="onnx_attention", opset=24, versions={})))
    assert operators <= {node.op_type for node in model.graph.node}
    assert list(differences(layer_of(read(model, tmp_path)), layer)) == []
