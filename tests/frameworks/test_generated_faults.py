"""Faults by generator, as in tests/process/faults/test_generated.py, of commands that need PyTorch and ONNX Runtime."""

from pathlib import Path

import judged
import pytest
import struck
from struck import Told

COMMANDS = {
    **{
        command: Told(judged.words(command, "out"), f"out/{verdict}", takes_long=True)
        for command, verdict in judged.VERDICTS.items()
    },
    "export": Told(("export", "onnx_pytorch", "--layer", "pre-gelu", "--to", "another.onnx"), takes_long=True),
    "profile": Told(("profile", "--impl", "pytorch", "--layer", "pre-gelu"), takes_long=True),
}

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged.make(tmp_path_factory.mktemp("prepared"))


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_strikes_a_command_nothing_is_lost_false_or_left(
    command: str, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events, made = struck.unstruck(prepared, tmp_path_factory.mktemp("plain"), COMMANDS[command])
    struck.faults_of_each(prepared, tmp_path_factory.mktemp("struck"), COMMANDS[command], events, made)
