"""Faults by generator, as in tests/process/faults/test_generated.py, of commands that need PyTorch and ONNX Runtime."""

from pathlib import Path

import pytest
import striking
import struck
from struck import Told

MODULES = """
from torch import nn

class One(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(16, 4, 24, batch_first=True, dropout=0.0)

class Other(One):
    pass
"""
CHECKED = ("--jobs", "1", "--out", "out")
COMMANDS = {
    "check": Told(("check", "m.py:One", "--dtype", "float32", *CHECKED), "out/check.json", takes_long=True),
    "diff": Told(("diff", "m.py:One", "m.py:Other", *CHECKED), "out/diff.json", takes_long=True),
    "validate": Told(("validate", "m.onnx", "--layer", "pre-gelu", *CHECKED), "out/validation.json", takes_long=True),
    "export": Told(("export", "onnx_pytorch", "--layer", "pre-gelu", "--to", "another.onnx"), takes_long=True),
    "profile": Told(("profile", "--impl", "pytorch", "--layer", "pre-gelu"), takes_long=True),
}

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("prepared")
    (place / "m.py").write_text(MODULES)
    printed = tmp_path_factory.mktemp("printed")
    assert striking.told(["export", "onnx_pytorch", "--layer", "pre-gelu", "--to", "m.onnx"], place, printed, None) == 0
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_strikes_a_command_nothing_is_lost_false_or_left(
    command: str, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events, made = struck.unstruck(prepared, tmp_path_factory.mktemp("plain"), COMMANDS[command])
    struck.faults_of_each(prepared, tmp_path_factory.mktemp("struck"), COMMANDS[command], events, made)
