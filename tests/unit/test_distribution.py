"""What a wheel leaves out of the checkout, and what it says of itself."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

import encoder_conformance
from encoder_conformance.spec.load import load
from encoder_conformance.spec.size import is_large

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["requirements_txt"]["optional-dependencies"]
OF_SMOKE = ("post-relu", "pre-gelu")
"""The layers that `conform smoke` asks: most adapters have one of them."""


def test_a_wheel_has_the_goldens_of_the_core_and_of_large_layers() -> None:
    """Others are computed first, within a second or two each (`Goldens.computed`)."""
    specification = load()
    core = {specification.cases[case_id].golden_id for case_id in specification.core}
    due = {
        name
        for name, case in specification.with_golden.items()
        if name in core or is_large(case.layer) or case.layer.layer in OF_SMOKE
    }
    kept = {name for name in specification.with_golden if not is_left_out(f"/specs/golden/{name}.safetensors")}
    assert kept == due, "pyproject.toml: tool.hatch.build.exclude"


def is_left_out(path: str) -> bool:
    """As hatch reads it, and git its .gitignore: the last pattern that fits decides."""
    patterns: list[str] = PROJECT["tool"]["hatch"]["build"]["exclude"]
    fitting = [pattern for pattern in patterns if fnmatchcase(path, pattern.removeprefix("!"))]
    return bool(fitting) and not fitting[-1].startswith("!")


@pytest.mark.parametrize("extra", ["torch", "keras", "jax", "onnx"])
def test_what_a_user_has_installed_stays(extra: str) -> None:
    lines = (ROOT / EXTRAS[extra][0]).read_text(encoding="utf-8").split()
    assert len(EXTRAS[extra]) == 1
    assert lines
    assert all(">=" in line and "," not in line for line in lines), lines


def test_everything_and_what_a_maintainer_needs_are_extras() -> None:
    assert {"all", "dev"} <= EXTRAS.keys()


def test_the_version_is_said_alike() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == encoder_conformance.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {encoder_conformance.__version__} " in changelog
