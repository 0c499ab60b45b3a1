"""Two modules of PyTorch, a file of ONNX, and the commands that judge them: what faults are tried on."""

import subprocess
import sys
from pathlib import Path

MODULES = """
from torch import nn

class One(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(16, 4, 24, batch_first=True, dropout=0.0)

class Other(One):
    pass
"""
CONFORM = Path(sys.executable).with_name("conform")
COMMANDS = {
    "check": ("{place}m.py:One", "--dtype", "float32", "--jobs", "1"),
    "diff": ("{place}m.py:One", "{place}m.py:Other", "--jobs", "1"),
    "validate": ("{place}m.onnx", "--layer", "pre-gelu", "--jobs", "1"),
}
VERDICTS = {"check": "check.json", "diff": "diff.json", "validate": "validation.json"}
"""Command → the file of its verdict, in the folder that --out names."""


def make(place: Path) -> Path:
    """The folder that has them."""
    (place / "m.py").write_text(MODULES)
    words = [CONFORM, "export", "onnx_pytorch", "--layer", "pre-gelu", "--to", "m.onnx"]
    subprocess.run(words, cwd=place, check=True, timeout=300, stdout=subprocess.DEVNULL)
    return place


def words(command: str, out: str | Path, place: Path | None = None) -> tuple[str, ...]:
    """What is told; `place`: their folder, unless the command is told there."""
    folder = f"{place}/" if place else ""
    return (command, *(each.format(place=folder) for each in COMMANDS[command]), "--out", str(out))
