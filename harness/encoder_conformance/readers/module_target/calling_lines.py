"""The lines of the user's source among the frames of a call, where no exporter keeps them."""

import os
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from linecache import getline
from pathlib import Path
from traceback import FrameSummary

from encoder_conformance.platform.paths import PACKAGE, ROOT

SoughtLines = Callable[[str, bool], str]
"""(value of a graph, moved) → the line of the user's source that makes it, and what stands there; "" where it is not
sure. `moved`: of the steps that give its numbers, that which arranges them."""


def line_in(frames: Iterable[FrameSummary], libraries: Iterable[str]) -> str:
    """`model.py:12`, of the frame that `frame_in` finds; "" for none."""
    found = frame_in(frames, libraries)
    return f"{Path(found.filename).name}:{found.lineno}" if found else ""


_NOTATIONS = "einops", "opt_einsum", "jaxtyping", "beartype"
"""Packages that people write a line of their own with."""


def code_in(frames: Iterable[FrameSummary], libraries: Iterable[str]) -> str:
    """`model.py:12: x = self.attend(x)`, the line and what stands there."""
    frames = list(frames)
    found = frame_in(frames, libraries)
    if found is None:
        return ""
    code = found.line or getline(found.filename, found.lineno or 0).strip()
    return ": ".join(filter(None, (line_in(frames, libraries), code)))


def frame_in(frames: Iterable[FrameSummary], libraries: Iterable[str]) -> FrameSummary | None:
    """The innermost frame that is of none of these packages, nor of Python's own or ours. `frames`: the outermost
    first."""
    theirs = (*_folders((*libraries, *_NOTATIONS)), str(PACKAGE), str(ROOT / "impls"), sysconfig.get_paths()["stdlib"])
    own = [each for each in frames if _is_source(each.filename) and not _is_in(each.filename, theirs)]
    return own[-1] if own else None


def _is_source(path: str) -> bool:
    return path.endswith(".py")


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    """What is installed lies in a folder of Python's own, and may be the user's all the same."""
    *libraries, stdlib = folders
    theirs = tuple(f"{folder}{os.sep}" for folder in libraries)
    return path.startswith(theirs) or (path.startswith(stdlib) and "site-packages" not in path)


@cache
def _folders(libraries: tuple[str, ...]) -> tuple[str, ...]:
    found = (find_spec(name) for name in libraries)
    return tuple(str(Path(each.origin).parent) for each in found if each is not None and each.origin)
