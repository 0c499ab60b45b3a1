"""The files that a module's worker reads: a verdict on the module holds as long as they stay as they are."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir

from encoder_conformance.platform.recent import cache_folder
from encoder_conformance.protocol.files_read import FilesReadAnswer

_FOLDERS = ("os.listdir", "os.scandir")
_BEYOND = ("socket.connect", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "sqlite3.connect")
"""Audit events of what a module asks of others, whose answers may differ the next time."""
_HEARD = frozenset({"open", *_FOLDERS, *_BEYOND})
_TELL_OF_THE_MACHINE = frozenset({"uname", "ldconfig", "lscpu"})
"""Programs that frameworks run when they are imported, and that answer the same on one machine."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ODD = re.compile(r"//|/\.(/|$)|.+/$")
_OF_THE_MACHINE = ("/proc/", "/sys/", "/dev/")


class FilesRead:
    """Python's audit events tell each file that is opened and each folder that is listed (PEP 578). What native code
    opens by itself makes none.

    A hook can never be taken back: one is for a process that ends with the module.
    """

    def __init__(self) -> None:
        self._opened: set[str] = set()
        self._written: set[str] = set()
        self._listed: set[str] = set()
        self._beyond: set[str] = set()
        heard = self._heard

        def hook(event: str, told: tuple[object, ...]) -> None:
            if event in _HEARD:  # one of fifty is, of two hundred thousand in a check
                heard(event, told)

        sys.addaudithook(hook)

    def _heard(self, event: str, told: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = told
            _add(path, self._written if isinstance(flags, int) and flags & _WRITES else self._opened)
        elif event in _FOLDERS:
            _add(told[0] or ".", self._listed)
        elif event in _BEYOND and not _is_of_the_machine(event, told):
            self._beyond.add(event)

    def answer(self) -> FilesReadAnswer:
        """All of it so far, by absolute paths. A file that is written into tells that what was read may be other the
        next time, unless it is a temporary one that was not there before."""
        temporary = f"{_absolute(gettempdir())}{os.sep}"
        fixed = (*_OF_THE_MACHINE, *([f"{kept}{os.sep}"] if (kept := cache_folder("")) else []))
        opened = {*self._opened, *_imported()}
        files = {path for path in (*opened, *_sources_of(opened)) if _may_change(path, fixed)}
        passing = {path for path in files if path.startswith(temporary) and not Path(path).exists()}
        written = {path for path in self._written if _may_change(path, (*fixed, temporary)) or path in files - passing}
        left = {path for path in written if path != temporary.rstrip(os.sep)}
        return FilesReadAnswer(
            files=tuple(sorted(files - passing - left)),
            folders=tuple(sorted(path for path in self._listed if _may_change(path, fixed))),
            beyond=(*sorted(self._beyond), *(f"{path} is written" for path in sorted(left))),
        )


def _add(path: object, to: set[str]) -> None:
    if isinstance(path, (str, bytes)):  # else a descriptor of what was opened by its path
        with suppress(OSError, ValueError):  # the working directory was deleted, or it is no text
            to.add(_absolute(os.fsdecode(path)))


def _absolute(path: str) -> str:
    """As `Path.absolute` gives it, which takes its time: an import opens thousands of files, by such paths."""
    return path if path.startswith("/") and not _ODD.search(path) else str(Path(path).absolute())


def _is_of_the_machine(event: str, told: tuple[object, ...]) -> bool:
    program = told[0] if event == "subprocess.Popen" else None
    return isinstance(program, str) and Path(program).name in _TELL_OF_THE_MACHINE


def _may_change(path: str, fixed: tuple[str, ...]) -> bool:
    """Whether it is in none of some folders, of the machine and of what is kept by all that it depends on, and is none
    of Python's compiled files, which follow their sources."""
    return not (path.endswith(".pyc") or f"{os.sep}__pycache__{os.sep}" in path or path.startswith(fixed))


def _imported() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(path, str) and os.sep in path:
            yield _absolute(path)


def _sources_of(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if path.endswith(".pyc"):
            with suppress(ValueError):
                yield importlib.util.source_from_cache(path)
