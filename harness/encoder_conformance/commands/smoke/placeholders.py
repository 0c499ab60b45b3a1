"""Locates blanks in an adapter's folder, each a `raise NotImplementedError("…")`, and the lines that raise errors."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.platform import clean
from encoder_conformance.platform.paths import shown
from encoder_conformance.worker.launch import end_of_log

MARK = "BLANK"
"""Prefix of the text of each blank that `conform new` leaves."""


@dataclass(frozen=True)
class Placeholder:
    """A `raise NotImplementedError(text)` at a line of a file."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line}: {self.text}"


def placeholders_of(folder: Path) -> list[Placeholder]:
    """The blanks that are left, by file and line."""
    return [raised for raised in _find_placeholders(folder) if raised.text.startswith(MARK)]


def find_raised_placeholder(folder: Path, message: str) -> Placeholder | None:
    """The placeholder that raised the error in `message`, if one did."""
    _, is_placeholder, text = message.partition("NotImplementedError: ")
    left = _find_placeholders(folder) if is_placeholder else ()
    found = (each for each in left if text.strip().startswith(each.text))
    return max(found, key=lambda each: len(each.text), default=None)


def locate_error(message: str, log: Path, folder: Path) -> str:
    """The place where the error in `message` was raised: `raised at adapter.py:31, in build`.

    If that is outside this folder: `raised at layer.py:125, in forward; called at adapter.py:31, in build`. "" if the
    log's last traceback is of another error.
    """
    traceback = end_of_log(log).rpartition(_TRACEBACK)[2]
    raised = next((line for line in traceback.splitlines() if _ERROR.match(line)), "")
    kind, colon, text = raised.partition(":")
    if not raised or f"{kind.rpartition('.')[2]}{colon}{text}"[:200] not in message:
        return ""
    frames = [(Path(file), line, function) for file, line, function in _FRAME.findall(traceback)]
    own_frames = [frame for frame in frames if frame[0].parent == folder.resolve()]
    if not own_frames:
        return ""
    called = _format_place(*own_frames[-1])
    if own_frames[-1] == frames[-1]:
        return f"raised at {called}"
    return f"raised at {_format_place(*frames[-1])}; called at {called}"


_TRACEBACK = "Traceback (most recent call last):\n"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_FRAME = re.compile(r'File "(.+?)", line ([0-9]+), in (.+)')


def _format_place(file: Path, line: str, function: str) -> str:
    return clean.line(f"{shown(file)}:{line}, in {function}")


def _find_placeholders(folder: Path) -> Iterator[Placeholder]:
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # the adapter's interpreter reports it, with the line
        for node in ast.walk(tree):
            match node:
                case ast.Raise(
                    exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(text))])
                ) if text.strip():
                    yield Placeholder(path, node.lineno, text.strip())
