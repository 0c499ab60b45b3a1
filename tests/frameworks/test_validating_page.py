"""docs/validating.md shows what `conform validate` prints today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.xdist_group("page")  # its files are exported once


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validating_page", Path(__file__).with_name("validating_page.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(page: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    page.make_files(folder)
    return folder


SLOW = ("encoder.onnx --against",)
"""What the commands of the page begin with, after `conform validate`, but for those that every test run asks."""


@pytest.mark.parametrize("begins", [*(pytest.param(each, marks=pytest.mark.release) for each in SLOW), "gelu.onnx"])
def test_a_transcript_is_what_the_command_prints(page: ModuleType, files: Path, begins: str) -> None:
    commands = {command: text for command, text in page.written().items() if command.split()[2] == begins.split()[0]}
    [(command, transcript)] = [
        each for each in commands.items() if len(commands) == 1 or ("--against" in each[0]) == ("--against" in begins)
    ]
    assert page.as_anywhere(page.printed(command, files)) == page.as_anywhere(transcript)


def test_every_transcript_of_the_page_is_run(page: ModuleType) -> None:
    asked = sorted(command.split()[2] for command in page.written())
    assert asked == sorted([*(each.split()[0] for each in SLOW), "gelu.onnx"])
    assert page.PAGE.read_text(encoding="utf-8").count("\n✓ checker") == len(asked)
