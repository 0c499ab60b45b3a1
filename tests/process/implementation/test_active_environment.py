"""conform in an environment of its own (pipx, uvx) finds what the active virtual environment has."""

import sys
from pathlib import Path

import pytest

from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import Implementation, read_implementation
from encoder_conformance.platform.paths import IMPLS

FOLDER = IMPLS / "pytorch"


def wanting(module: str) -> Implementation:
    return read_implementation(FOLDER).model_copy(update={"requires": (module,)})


@pytest.fixture
def active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has NumPy, safetensors and `only_there`: its Python is this one, told where to look."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    (tmp_path / "only_there.py").touch()
    path = f"{tmp_path}:{':'.join(filter(None, sys.path))}"
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec {sys.executable} \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    return python


def test_an_active_environment_that_has_the_framework_is_used(active: Path) -> None:
    ready = resolve(wanting("only_there"), FOLDER, {})
    assert isinstance(ready, Ready)
    assert ready.interpreter == str(active)


def test_this_environment_comes_first(active: Path) -> None:
    ready = resolve(wanting("numpy"), FOLDER, {})
    assert isinstance(ready, Ready)
    assert ready.interpreter == sys.executable


def test_where_no_environment_has_it_the_hint_says_what_to_do(active: Path) -> None:
    missing = resolve(wanting("found_nowhere"), FOLDER, {})
    assert isinstance(missing, Missing)
    assert missing.reason == "found_nowhere not importable"
    assert "pip install '" in missing.hint
    assert "activate the virtual environment" in missing.hint
