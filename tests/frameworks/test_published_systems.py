"""The five systems as they were published: each is wrong in its own way, and its diagnosis has that name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from encoder_conformance.platform.paths import IMPLS

JOKERS = ("dropout-left-on", "attention-dropout-left-on", "attention-across-batch")
"""What was once named in place of what it is: its size alone is predicted, and would fit anything."""
UNDECLARED = """
from encoder_conformance import serve
from encoder_conformance.impls.{name}.adapter import {adapter}

serve({adapter}())
"""


@pytest.fixture
def run_undeclared(conform: Callable, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The report on one of them, told to be as published, where its manifest says nothing of that: it fails."""

    def run(name: str, adapter: str, told: str, *cases: str) -> dict[str, Any]:
        folder = tmp_path / "undeclared"
        folder.mkdir()
        manifest = yaml.safe_load((IMPLS / name / "impl.yaml").read_text(encoding="utf-8"))
        unsupported = [entry for entry in manifest["unsupported"] if "choices" not in entry["when"]]
        manifest |= {"name": "undeclared", "unsupported": unsupported, "deviations": []}
        (folder / "impl.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
        (folder / "adapter.py").write_text(UNDECLARED.format(name=name, adapter=adapter), encoding="utf-8")
        globs = [word for case in cases for word in ("--case", case)]
        ended = conform("run", "--impl", f"{folder}:{told}", *globs, "--dtype", "float32")
        assert ended.status == 1, ended.stdout + ended.stderr
        assert "error" not in ended.outcomes()  # a parameter that is never applied has a gradient, of 0
        assert "pass" not in ended.outcomes("output")
        return ended.report

    return run


@pytest.mark.release
def test_heads_by_a_reshape_are_named(run_undeclared: Callable) -> None:
    cases = ("post-relu/no-mask", "post-relu/padding-right", "pre-gelu/causal")
    report = run_undeclared("system_b_lucid_interface", "SystemB", "published=yes", *cases)
    [found] = report["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["heads-by-reshape"])


def test_a_placeholder_for_attention_is_named(run_undeclared: Callable) -> None:
    report = run_undeclared(
        "system_c_encoder_block", "SystemC", "published=yes", "post-relu/no-mask", "post-relu/causal"
    )
    [found] = report["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["attention-is-projected-query"])


@pytest.mark.release
def test_a_placeholder_for_attention_is_named_at_its_size(run_undeclared: Callable) -> None:
    cases = ("post-relu-512/no-mask", "post-relu-512/padding-right")
    [found] = run_undeclared("system_c_encoder_block", "SystemC", "published=yes", *cases)["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["attention-is-projected-query"])


def test_a_dropout_that_is_never_used_is_named(run_undeclared: Callable) -> None:
    report = run_undeclared("system_c_encoder_block", "SystemC", "published=dropout", "post-relu-512/dropout")
    [record] = report["records"]
    assert "dropout of ffn_activation: rate 0 instead of 0.1" in record["message"]
    assert "this is ffn-activation-dropout-missing" in record["message"]
    assert "attention" not in record["message"]


@pytest.mark.release
def test_projections_that_are_never_applied_are_named(run_undeclared: Callable) -> None:
    cases = ("pre-gelu-shared-heads/no-mask", "pre-gelu-shared-heads/padding-right")
    [found] = run_undeclared("system_e_shared_heads", "SystemE", "published=yes", *cases)["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["projections-not-applied"])


@pytest.mark.release
def test_over_all_of_its_layer_no_other_name_is_given_to_them(run_undeclared: Callable) -> None:
    report = run_undeclared("system_e_shared_heads", "SystemE", "published=yes", "pre-gelu-shared-heads/*")
    [found] = report["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["projections-not-applied"])
    assert not {name for name in JOKERS if name in json.dumps(report["diagnoses"])}


@pytest.mark.release  # a layer of BERT's size; tests/process/diagnosis/test_measured_epsilon.py measures small ones
def test_an_epsilon_that_no_argument_sets_is_measured(run_undeclared: Callable) -> None:
    report = run_undeclared("system_a_encoder_layer", "SystemA", "published=yes", "post-gelu-bert/low-variance")
    [found] = report["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["norm-epsilon"])
    [measured] = found["measured"]
    assert measured["value"] == pytest.approx(1e-5, rel=1e-2)


def test_lucids_interface_makes_its_parameters_where_and_in_what_it_is_told() -> None:
    import torch

    from encoder_conformance.impls.system_b_lucid_interface.encoder import TransformerEncoderLayer

    told = TransformerEncoderLayer(8, 2, device="meta", dtype=torch.bfloat16)
    assert {(each.device.type, each.dtype) for each in told.parameters()} == {("meta", torch.bfloat16)}
    untold = TransformerEncoderLayer(8, 2)
    assert {(each.device.type, each.dtype) for each in untold.parameters()} == {("cpu", torch.float32)}
