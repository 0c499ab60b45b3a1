"""A fault of ours while answers are kept for a diagnosis is said, and is no status 0: of a module and of a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

MODULES = Path(__file__).with_name("bare_modules.py")
FAULTS = {"diagnosis.observations:as_observed": ValueError("there is no rule for its gradient")}
SAID = "conform itself failed in this diagnosis, which changes no verdict: ValueError: there is no rule"


@pytest.mark.release
def test_check_says_it(conform: Callable) -> None:
    ended = conform("check", f"{MODULES}:Fused", "--jobs", "1", "--out", "report", faults=FAULTS)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert SAID in ended.stdout


@pytest.mark.release
def test_validate_says_it(conform: Callable, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    assert conform("export", "onnx_pytorch", "--layer", "pre-gelu", "--to", model).status == 0
    ended = conform("validate", model, "--jobs", "1", "--out", "report", faults=FAULTS)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert SAID in ended.stdout
