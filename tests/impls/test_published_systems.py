"""The five systems as they were published: each is wrong in its own way, and its diagnosis has that name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.paths import IMPLS

UNDECLARED = """
from harness.adapter import serve
from impls.{name}.adapter import {adapter}

serve({adapter}())
"""


@pytest.fixture
def run_undeclared(conform: Callable, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The report on one of them, told to be as published, where its manifest declares nothing; it does not conform."""

    def run(name: str, adapter: str, told: str, *cases: str) -> dict[str, Any]:
        folder = tmp_path / "undeclared"
        folder.mkdir()
        manifest = (IMPLS / name / "impl.yaml").read_text(encoding="utf-8").replace(f"name: {name}", "name: undeclared")
        lists = r"^(unsupported|deviations):.*?(?=^[a-z])"
        manifest = re.sub(lists, r"\1: []\n", manifest, flags=re.MULTILINE | re.DOTALL)
        (folder / "impl.yaml").write_text(manifest, encoding="utf-8")
        (folder / "adapter.py").write_text(UNDECLARED.format(name=name, adapter=adapter), encoding="utf-8")
        globs = [word for case in cases for word in ("--case", case)]
        ended = conform("run", "--impl", f"{folder}:{told}", *globs, "--dtype", "float32")
        assert ended.status == 1, ended.stdout + ended.stderr
        assert "error" not in ended.outcomes()  # a parameter that is never applied has a gradient, of 0
        assert "pass" not in ended.outcomes("output")
        return ended.report

    return run


def test_heads_by_a_reshape_are_named(run_undeclared: Callable) -> None:
    cases = ("post-relu/no-mask", "post-relu/padding-right", "pre-gelu/causal")
    report = run_undeclared("system_b_lucid_interface", "SystemB", "published=yes", *cases)
    [found] = report["diagnoses"]
    assert (found["confidence"], found["deviations"]) == ("explained", ["heads-by-reshape"])


def test_a_placeholder_for_attention_is_not_accepted(run_undeclared: Callable) -> None:
    report = run_undeclared(
        "system_c_encoder_block", "SystemC", "published=yes", "post-relu/no-mask", "post-relu/causal"
    )
    [found] = report["diagnoses"]
    assert found["confidence"] == "explained"


def test_a_dropout_that_is_never_used_is_named(run_undeclared: Callable) -> None:
    report = run_undeclared("system_c_encoder_block", "SystemC", "published=dropout", "post-relu-512/dropout")
    [record] = report["records"]
    assert "dropout of ffn_activation: rate 0 instead of 0.1" in record["message"]
    assert "attention" not in record["message"]


def test_projections_that_are_never_applied_are_not_accepted(run_undeclared: Callable) -> None:
    cases = ("pre-gelu-shared-heads/no-mask", "pre-gelu-shared-heads/padding-right")
    run_undeclared("system_e_shared_heads", "SystemE", "published=yes", *cases)


def test_an_epsilon_that_no_argument_sets_is_seen(run_undeclared: Callable) -> None:
    run_undeclared("system_a_encoder_layer", "SystemA", "published=yes", "post-gelu-bert/low-variance")
