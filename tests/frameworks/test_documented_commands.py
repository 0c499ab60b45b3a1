"""Every command that a page shows on a line of its own is run, in the order of the page."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.wrong_backend import wrong_backend

from encoder_conformance.platform.paths import SPECS

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(r"^    (conform [^\n`]+)$", re.MULTILINE)
COMMENT = re.compile(r"\s{2,}.*$| +#.*$| \| .*$")
"""What a command is not: a comment, and the program that it is piped to."""
PAGES = (
    "README.md",
    *("docs/adding-a-backend.md", "docs/ci.md", "docs/finding-kinds.md", "docs/looking.md"),
    *("docs/reading-a-report.md", "docs/running.md", "docs/start.md"),
)
ELSEWHERE = {
    "docs/checking.md": "tests/frameworks/test_check.py and test_diff.py",
    "docs/tensors.md": "tests/process/commands/test_tensor_files.py",
    "docs/validating.md": "tests/frameworks/test_validating_page.py",
    "docs/systems.md": "tests/frameworks/test_systems.py",
    "docs/scale.md": "tests/cluster/test_dask.py and tests/process/reports/test_shards.py",
}
"""Pages whose commands other tests run."""
ENCODER = """

import torch

torch.manual_seed(0)
Layer, encoder = Block, Block().eval()
if __name__ == "__main__":
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    given = torch.randn(2, 5, 64), torch.zeros(2, 5, dtype=torch.bool)
    named = {"input_names": ["x", "padding"], "output_names": ["y"], "dynamic_shapes": (free, free)}
    torch.onnx.export(encoder, given, "model.onnx", dynamo=True, verbose=False, **named)
"""
"""What the pages speak of beside the block of docs/checking/model.py: an instance of it, and its file."""
NEEDS_NETWORK = ("conform versions",)
"""tests/process/commands/test_versions.py runs it on an index of its own."""
SMALL = (
    "--case",
    "pre-gelu/no-mask",
    "--case",
    "post-relu/no-mask",
    "--case",
    "post-gelu/no-mask",
    "--dtype",
    "float32",
)
"""What is asked where a page asks the core or more: minutes, of each implementation."""


def commands_of(page: str) -> list[str]:
    found = [COMMENT.sub("", match[1]).strip() for match in SHOWN.finditer((ROOT / page).read_text(encoding="utf-8"))]
    return [command for command in dict.fromkeys(found) if not command.startswith(NEEDS_NETWORK)]


def test_every_page_with_commands_is_run_here_or_elsewhere() -> None:
    shown = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    with_commands = {page for page in shown if SHOWN.search((ROOT / page).read_text(encoding="utf-8"))}
    assert with_commands <= {*PAGES, *ELSEWHERE}
    for tests in ELSEWHERE.values():
        first, *others = tests.split(" and ")
        for name in [first, *others]:
            path = ROOT / name if "/" in name else (ROOT / first).with_name(name)
            assert path.is_file(), name


def conform(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("conform")
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What the pages speak of: a backend with a bug, a module, its file, a layer, and runs of other days."""
    wrong_backend(tmp_path / "my_backend")
    block = (ROOT / "docs" / "checking" / "model.py").read_text(encoding="utf-8")
    (tmp_path / "model.py").write_text(block + ENCODER, encoding="utf-8")
    subprocess.run([sys.executable, "model.py"], cwd=tmp_path, check=True, capture_output=True)
    layer = next(SPECS.glob("layers/**/pre-gelu.yaml")).read_text(encoding="utf-8")
    (tmp_path / "my-layer.yaml").write_text(
        layer.replace("layer: pre-gelu\n", "layer: my-layer\n", 1), encoding="utf-8"
    )
    run = conform(tmp_path, "run", "--impl", "./my_backend", *SMALL, "--out", "last-release")
    assert run.returncode == 1, run.stderr
    shutil.copytree(tmp_path / "last-release", tmp_path / "last-week")
    for number, name in enumerate(("torch-2.11", "torch-2.12", "torch-2.13", "pytorch", "jax")):
        report = json.loads((tmp_path / "last-release" / "report.json").read_text())
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "report.json").write_text(
            json.dumps({**report, "started": f"2026-11-0{number + 1}"})
        )
    return tmp_path


@pytest.mark.release
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_can_be_run(folder: Path, page: str) -> None:
    ran = 0
    for command in commands_of(page):
        _, *words = shlex.split(command)
        if words[0] == "run" and "--case" not in words:
            words += ["--case", "*/no-mask", "--dtype", "float32"] if "--layer" in words else SMALL
        if words[0] == "run" and "--impl" not in words:
            words += ["--impl", "pytorch"]  # not every one that is installed: in an environment of all, minutes
        if words[0] == "explain" and "keras_tf" in words:
            assert conform(folder, "run", "--impl", "keras_tf", "--case", "post-gelu/low-variance").returncode == 0
        if words[0] == "reproduce" or "--resume" in words:
            conform(folder, "run", "--impl", "./my_backend", *SMALL)
        if words[0] == "new":
            shutil.rmtree(folder / "my_backend")
        if words[0] == "merge":
            shutil.rmtree(folder / "report")  # of the section before
        ended = conform(folder, *words)
        assert ended.returncode in (0, 1), f"{command}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr, command
        ran += 1
    assert ran
