"""What the tests of several files share."""

import importlib.util
import json
import runpy
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def _exports_of_this_process_share_one_registry() -> None:
    """As those of `onnx_pytorch` do: each export would read the signatures of all operators, which takes a second."""
    if importlib.util.find_spec("onnxscript"):
        import_module("encoder_conformance.impls.onnx_pytorch.encoder").once_a_process()


@pytest.fixture(scope="session")
def strangers() -> ModuleType:
    """`strangers.py`, which needs ONNX: imported by the tests that ask for it, and by no other."""
    spec = importlib.util.spec_from_file_location("strangers", Path(__file__).with_name("strangers.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A text as source.py in a folder of its own, where it was run once as a program: what it writes is beside it."""

    def written(text: str) -> Path:
        folder = tmp_path_factory.mktemp("exported")
        (folder / "source.py").write_text(textwrap.dedent(text))
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(folder)
            runpy.run_path("source.py", run_name="__main__")
        return folder

    return written


@pytest.fixture
def against(files: Path, conform: Callable, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Validate one of the test module's `files` against a source: the exit status, the JSON, and what was printed."""

    def validated(file: str, source: str, *more: str) -> tuple[int, dict[str, Any], str]:
        named = f"{files / source}" if source.endswith((".onnx", ".npz")) else f"{files / 'source.py'}:{source}"
        told = ("--runtime", "onnxruntime", *more, "--out", tmp_path / "out")
        ended = conform("validate", files / file, "--against", named, *told)
        results = [*(tmp_path / "out").rglob("validation.json")]
        assert results, ended.stdout + ended.stderr
        return ended.status, json.loads(results[0].read_text()), ended.stdout

    return validated
