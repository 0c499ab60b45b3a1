"""Where in an adapter's folder: blanks that nobody has filled, each a `raise NotImplementedError("…")`, and errors."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.paths import shown

MARK = "BLANK"
"""What the text of a blank that `conform new` leaves begins with."""


@dataclass(frozen=True)
class Placeholder:
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line}: {self.text}"


def placeholders_of(folder: Path) -> list[Placeholder]:
    """Those that are left, by file and line."""
    return [raised for raised in _raised(folder) if raised.text.startswith(MARK)]


def placeholder_behind(folder: Path, message: str) -> Placeholder | None:
    """The one that was run into, if that is what an adapter's error says."""
    _, named, said = message.partition("NotImplementedError: ")
    found = [raised for raised in _raised(folder) if named and said.strip().startswith(raised.text)]
    return max(found, key=lambda raised: len(raised.text), default=None)


def place_of(message: str, log: Path, folder: Path) -> str:
    """Where what `message` says was raised: `raised at adapter.py:31, in build`, or, if that was not in this folder,
    `raised at layer.py:125, in forward; called at adapter.py:31, in build`. "" where the log's last is another's.
    """
    traceback = log.read_text(errors="replace").rpartition(_TRACEBACK)[2]
    raised = next((line for line in traceback.splitlines() if _ERROR.match(line)), "")
    kind, colon, text = raised.partition(":")
    if not raised or f"{kind.rpartition('.')[2]}{colon}{text}"[:200] not in message:
        return ""
    frames = [(Path(file), line, of) for file, line, of in _FRAME.findall(traceback)]
    own = [frame for frame in frames if frame[0].parent == folder.resolve()]
    if not own:
        return ""
    called = _place(*own[-1])
    return f"raised at {called}" if own[-1] == frames[-1] else f"raised at {_place(*frames[-1])}; called at {called}"


_TRACEBACK = "Traceback (most recent call last):\n"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_FRAME = re.compile(r'File "(.+?)", line ([0-9]+), in (.+)')


def _place(file: Path, line: str, of: str) -> str:
    return f"{shown(file)}:{line}, in {of}"


def _raised(folder: Path) -> Iterator[Placeholder]:
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
                    yield Placeholder(path, node.lineno, text.strip())
