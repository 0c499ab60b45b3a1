"""Installing adds one name to what Python can import, and no folder of the user's takes its place."""

import sys
from collections.abc import Callable
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest

import encoder_conformance
from encoder_conformance import adapter

FOLDERS = ("harness", "impls", "specs", "tests", "encoder_conformance")
CHECKED = """
import sys
import encoder_conformance, harness, impls, specs
from encoder_conformance import Adapter, Environment, serve

assert (harness.OWN, impls.OWN, specs.OWN) == ("harness", "impls", "specs"), "the user's own folders"
assert not {"pydantic", "scipy", "yaml"} & set(sys.modules), "an adapter needs numpy and safetensors only"
"""


def test_one_name_is_installed() -> None:
    installed = files("encoder-conformance")
    assert installed
    tops = {path.parts[0] for path in installed if path.parts[0] != ".." and ".dist-info" not in path.parts[0]}
    assert tops <= {"encoder_conformance", "_encoder_conformance.pth"}, tops
    assert len(tops) == 1


def test_what_an_adapter_is_written_with_is_there_by_name() -> None:
    assert all(hasattr(encoder_conformance, name) for name in encoder_conformance.__all__)
    for_users = {"__version__", "InputError", "assert_conforms", "check"}
    assert {*encoder_conformance.__all__} == {*for_users, *adapter.__all__}, "two lists, for the root's is lazy"
    with pytest.raises(AttributeError, match="no attribute 'Adaptor'"):
        _ = encoder_conformance.Adaptor
    assert "harness" not in sys.modules


def test_folders_of_the_same_names_beside_an_adapter_break_nothing(
    conform: Callable[..., Any], fake: Callable, tmp_path: Path
) -> None:
    """The worker runs where the user's own folders are the first that Python looks into."""
    folder = fake("mine", checks="[output]")
    adapter = folder / "adapter.py"
    adapter.write_text(CHECKED + adapter.read_text())
    for place in (folder, tmp_path):
        for name in FOLDERS:
            (place / name).mkdir()
            own = "raise ImportError('shadowed')" if name == "encoder_conformance" else f"OWN = {name!r}"
            (place / name / "__init__.py").write_text(own + "\n")
    ended = conform("run", "--impl", folder, "--case", "pre-gelu/no-mask")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert set(ended.outcomes("output")) == {"pass"}
