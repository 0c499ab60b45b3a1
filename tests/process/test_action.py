"""action.yml: the step that judges, run as a runner does."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
[JUDGE] = [step for step in ACTION["runs"]["steps"] if step.get("id") == "judge"]


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the step with these inputs."""
    installed = tmp_path / "conform" / "bin"
    installed.mkdir(parents=True)
    (installed / "conform").symlink_to(Path(sys.executable).with_name("conform"))

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        given = {name: inputs.get(name.lower(), "") for name in JUDGE["env"]}
        files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        environment = {**os.environ, **given, **files, "RUNNER_TEMP": str(tmp_path)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", JUDGE["run"]]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.release
def test_the_step_judges_and_reports(
    step: Callable[..., subprocess.CompletedProcess[str]], fake: Callable[..., Path], tmp_path: Path
) -> None:
    folder = fake("broken", "def output(self, x, masks, run): raise ValueError('no')")
    ended = step(impl=f"./{folder.name}", arguments="--case pre-gelu/no-mask --dtype float64 --fail-fast")
    assert ended.returncode == 1, ended.stderr
    assert "::error file=broken/adapter.py" in ended.stdout
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"report={tmp_path}/conform-report\n"
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().startswith("## ✗ ")
    assert {"report.json", "junit.xml", "badge.svg"} <= {file.name for file in (tmp_path / "conform-report").iterdir()}


def test_an_input_is_no_command(step: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    ended = step(impl="$(touch forged); `touch forged`")
    assert ended.returncode == 2
    assert not (tmp_path / "forged").exists()
    assert step().stdout.startswith("::error::name an implementation")


def test_the_step_uses_no_expression_in_its_text() -> None:
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])
