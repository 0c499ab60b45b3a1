"""What the tests of several files share."""

import importlib.util
import runpy
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

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
