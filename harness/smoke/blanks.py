"""Where in an adapter's folder: blanks that nobody has filled, each a `raise NotImplementedError("…")`, and errors."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.paths import shown

MARK = "BLANK"
"""What the text of a blank that `conform new` leaves begins with."""


@dataclass(frozen=True)
class Blank:
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line}: {self.text}"


def blanks_of(folder: Path) -> list[Blank]:
    """Those that are left, by file and line."""
    return [raised for raised in _raised(folder) if raised.text.startswith(MARK)]


def blank_behind(folder: Path, message: str) -> Blank | None:
    """The one that was run into, if that is what an adapter's error says."""
    _, named, said = message.partition("NotImplementedError: ")
    found = [raised for raised in _raised(folder) if named and said.strip().startswith(raised.text)]
    return max(found, key=lambda raised: len(raised.text), default=None)


def place_of(message: str, log: Path, folder: Path) -> str:
    """`adapter.py:31, in build`, the innermost line of this folder in the traceback of what `message` says, or ""."""
    traceback = log.read_text(errors="replace").rpartition("Traceback (most recent call last)")[2]
    raised = next((line for line in traceback.splitlines() if line and not line[0].isspace() and ":" in line), "")
    if not raised or raised[:200] not in message:
        return ""  # it is an earlier one's
    frames = re.findall(r'File "(.+?)", line ([0-9]+), in (.+)', traceback)
    own = [(Path(file), line, of) for file, line, of in frames if Path(file).parent == folder.resolve()]
    return f"{shown(own[-1][0])}:{own[-1][1]}, in {own[-1][2]}" if own else ""


def _raised(folder: Path) -> Iterator[Blank]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # the adapter's own interpreter says it, with the line
        for node in ast.walk(tree):
            match node:
                case ast.Raise(
                    exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(text))])
                ) if text.strip():
                    yield Blank(path, node.lineno, text.strip())
