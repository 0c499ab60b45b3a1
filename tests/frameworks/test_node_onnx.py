"""The adapter in JavaScript: how small it is, that it conforms, and what is said where Node or a package is missing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.implementation.manifest import read_implementation_manifest
from encoder_conformance.platform.paths import IMPLS

FOLDER = IMPLS / "node_onnx"
SCRIPTS = sorted(FOLDER.glob("*.js"))
CASES = (
    "post-relu/mask-per-item-and-head",
    "pre-gelu/full-and-padded-item",
    "pre-gelu/alibi-padding",
    "pre-gelu/unbatched-padding",
    "pre-gelu/invariant-*",
    "pre-gelu/refuse-*",
    "pre-gelu/weights-returned",
    "post-rms-gelu-tanh/padding-right",
    "pre-rms-silu/causal-flag-padding-left-ignore",
    "post-relu-zero-rows/padding-nan",
    "pre-gelu-uniform-rows/blind-queries-padding",
    "post-gelu-nan-rows/blind-queries-forward",
    "stack-shared-heads/padding-right",
    "encoder-pre-gelu/tokens-padding",
)


def lines_of_code(script: Path) -> list[str]:
    """All but blank lines and those that are nothing but a comment."""
    lines = [line.strip() for line in script.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith(("//", "/**"))]


def test_it_is_two_hundred_lines_of_javascript_in_two_files() -> None:
    assert [script.name for script in SCRIPTS] == ["adapter.js", "encoder.js"]
    assert sum(len(lines_of_code(script)) for script in SCRIPTS) <= 200
    assert all(len(line) <= 120 for script in SCRIPTS for line in script.read_text(encoding="utf-8").splitlines())


def test_nothing_of_python_is_in_it() -> None:
    there = {path.name for path in FOLDER.iterdir()} - {"node_modules"}
    assert there == {"impl.yaml", "package.json", "package-lock.json", *(script.name for script in SCRIPTS)}
    assert "python" not in read_implementation_manifest(FOLDER).command


def test_the_lock_pins_what_package_json_names_and_names_no_registry() -> None:
    asked = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    lock = (FOLDER / "package-lock.json").read_text()
    locked = json.loads(lock)["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in asked} == asked
    assert all("integrity" in package for path, package in locked.items() if path)
    assert "resolved" not in lock


def test_the_row_conforms(conform: Callable) -> None:
    words = [word for case in CASES for word in ("--case", case)]
    ended = conform("run", "--impl", "node_onnx", "--dtype", "float32", *words)
    assert ended.status == 0, ended.stdout + ended.stderr
    asked = {outcome for outcome in ended.outcomes() if outcome != "unsupported"}
    assert asked == {"pass"}
    passed = {record["case"] for record in ended.report["records"] if record["outcome"] == "pass"}
    assert {case.partition("/")[0] for case in passed} == {case.partition("/")[0] for case in CASES}


def test_float64_is_float64_all_the_way(conform: Callable) -> None:
    """The heads of post-relu have five features, and the root of five is not a float32."""
    ended = conform("run", "--impl", "node_onnx", "--case", "post-relu/no-mask", "--dtype", "float64")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "pass" in ended.outcomes("output")


def test_an_operation_that_it_does_not_have_is_answered(conform: Callable) -> None:
    ended = conform("profile", "--impl", "node_onnx", "--layer", "pre-gelu", "--batch", "1", "--sequence", "4")
    assert "unsupported: the operation profile" in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_missing_packages_are_said_with_the_line_that_installs_them(conform: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "node_onnx"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules"))
    ended = conform("run", "--impl", folder, "--case", "pre-gelu/no-mask")
    assert ended.status == 2, ended.stdout + ended.stderr
    assert "node_modules/onnxruntime-node, node_modules/onnx-proto not in node_onnx" in ended.stderr
    assert "npm install --ignore-scripts --prefix node_onnx" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 2


def test_a_missing_node_is_said_with_the_line_that_installs_it(
    conform: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = conform("run", "--impl", "node_onnx", "--case", "pre-gelu/no-mask")
    assert ended.status == 2, ended.stdout + ended.stderr
    assert "its command 'node' is not found" in ended.stderr
    assert "install node, then: npm install --ignore-scripts --prefix " in ended.stderr
