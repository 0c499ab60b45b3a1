"""Each exporter through the cases that tell exporters apart, and one export of each in every runtime."""

from collections.abc import Callable
from pathlib import Path

import pytest

EXPORTERS = ("onnx_pytorch_legacy", "onnx_direct", "onnx_attention", "onnx_jax", "onnx_keras")
CASES = (
    "post-relu/no-mask",  # B and S are not those of the export
    "post-relu/length-100",
    "post-relu/single-position",
    "post-relu/mask-per-item-and-head",
    "pre-gelu/full-and-padded-item",
    "pre-gelu/alibi-padding",  # a bias: another export
    "pre-gelu/refuse-*",
    "post-rms-gelu-tanh/padding-right",
    "pre-rms-silu/causal-padding-left",
    "post-relu-zero-rows/blind-queries",
    "post-relu-zero-rows/padding-nan",
    "pre-gelu-uniform-rows/blind-queries",
    "post-gelu-nan-rows/blind-queries-forward",
    "stack-pre-gelu/padding-right",
    "encoder-pre-gelu/tokens-padding",
)
WITH_KEYS = (
    "post-rope-interleaved/no-mask",
    "pre-rope-gated/padding-right",
    "pre-qk-norm-capped/padding-right",
    "pre-buckets/causal-padding-left",
    "pre-window-shiftless/padding-right",
    "encoder-alternating/whole",
    "encoder-shared-bias/whole-padding-left",
)
"""Rotations, fewer heads of keys, a cap, buckets, a window, and stacks whose layers differ in them."""
VARIANTS = (
    "onnx_direct:runtime=reference",
    "onnx_direct:runtime=openvino",
    "onnx_direct:level=disable",
    "onnx_direct:opset=17",
    "onnx_attention:opset=24",
)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_exporter_conforms_where_it_says_that_it_does(conform: Callable, exporter: str) -> None:
    cases = (word for case in CASES for word in ("--case", case))
    ended = conform("run", "--impl", exporter, "--dtype", "float32", *cases)
    assert ended.status == 0, ended.stdout + ended.stderr
    judged = [record for record in ended.report["records"] if record["outcome"] == "pass"]
    assert {record["case"].partition("/")[0] for record in judged} >= {"post-relu", "pre-gelu", "stack-pre-gelu"}


@pytest.mark.parametrize("exporter", ["onnx_direct", "onnx_attention", "onnx_attention:opset=24"])
def test_keys_of_published_encoders_by_operators(conform: Callable, exporter: str) -> None:
    cases = (word for case in WITH_KEYS for word in ("--case", case))
    ended = conform("run", "--impl", exporter, "--dtype", "float32", *cases)
    assert ended.status == 0, ended.stdout + ended.stderr
    outputs = [record for record in ended.report["records"] if record["check"] == "output"]
    assert [record["case"] for record in outputs if record["outcome"] == "pass"] == [each["case"] for each in outputs]
    assert {record["case"] for record in outputs} == set(WITH_KEYS)


def test_a_rotation_in_float64_is_written_out(conform: Callable) -> None:
    """The operator is of float32 and narrower formats."""
    ended = conform("run", "--impl", "onnx_attention", "--dtype", "float64", "--case", "pre-rope-gated/no-mask")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "pass" in ended.outcomes("output")


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_rows_of_their_own(conform: Callable, variant: str) -> None:
    ended = conform("run", "--impl", variant, "--case", "post-relu/padding-right", "--case", "post-relu/refuse-*")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert {record["implementation"] for record in ended.report["records"]} == {variant}


def test_a_second_run_finds_the_exports_of_the_first(
    conform: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And they are the same: what is kept has no parameters, and takes the next run's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen = []
    for _ in range(2):
        ended = conform("run", "--impl", "onnx_direct", "--case", "post-relu/padding-right", "--dtype", "float32")
        assert ended.status == 0, ended.stdout + ended.stderr
        seen.append([(record["check"], record["outcome"], record["rms"]) for record in ended.report["records"]])
        files = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.onnx")}
        assert files
        seen.append(files)
    assert seen[0] == seen[2]
    assert seen[1] == seen[3]
