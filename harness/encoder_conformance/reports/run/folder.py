"""The folder of a run: one of its own, which no other run writes to at the same time, and whose report is its own from
its first moment on."""

import contextlib
import datetime
import fcntl
import os
import re
from collections.abc import Generator
from pathlib import Path

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import writable

RUNS = Path("conform-report")
"""Where runs without --out have their folders, each named after the time of its start."""
LATEST = "latest"
"""The link beside them to the last one."""
NAME = "report.json"
"""The report in a run's folder."""
LOGS = "logs"
"""The folder of the workers' logs in it."""
EARLIER = f"{NAME}.before"
"""An earlier run's report, until this one has planned its checks."""
_NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?")
_MANY = 20
"""Runs from which their number is worth a line."""


@contextlib.contextmanager
def run_folder(out: Path | None, runs: Path = RUNS) -> Generator[Path]:
    """The folder for what a run writes, locked until the block ends: `out`, or a new one in `runs`, whose `latest`
    points to it from its beginning on, and again when it has ended: of several side by side, to the last that ended.

    Raises InputError if it cannot be written, or if another run writes there.
    """
    where = f"--out {out}" if out else str(runs)
    with writable(where):
        folder = _existing(out) if out else _new(runs)
        (folder / LOGS).mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    try:
        _lock(lock, where)
        yield folder
        if out is None:
            with contextlib.suppress(OSError):  # its verdict is written, and that alone says where
                point_latest_to(folder)
    finally:
        os.close(lock)


@contextlib.contextmanager
def begun_result(command: str, name: str, out: Path | None) -> Generator[Path]:
    """The file `name` for the verdict of a command other than `run`, in a `run_folder` of that command's own.

    An earlier verdict is set aside before anything else happens, and stays so unless the block writes a new one: what
    was killed, or could not be judged, leaves none that is of something else.
    """
    with run_folder(out, RUNS / command) as folder:
        result, earlier = folder / name, folder / f"{name}.before"
        with writable(f"--out {folder}"):
            if result.is_file():
                result.replace(earlier)
        yield result
        if result.exists():
            earlier.unlink(missing_ok=True)


@contextlib.contextmanager
def begun_run(out: Path | None) -> Generator[Path]:
    """`run_folder`, in which an earlier report is set aside before anything else happens.

    If the block raises InputError before it has written a report, there was no run, and everything is as it was.
    However else it ends, `conform explain` does not read the earlier run.
    """
    link = RUNS / LATEST
    last = link.readlink().name if link.is_symlink() else None
    with run_folder(out) as folder:
        report, earlier = folder / NAME, folder / EARLIER
        set_aside = report.is_file()
        if set_aside:
            with writable(f"--out {folder}"):
                report.replace(earlier)
        try:
            yield folder
        except InputError:
            if not report.exists():
                if set_aside:
                    earlier.replace(report)
                if out is None:
                    _remove(folder, last)
            raise
        if report.exists():
            earlier.unlink(missing_ok=True)


def many_runs() -> str:
    """A line that says how many runs without --out have left their folders here, and how large these are; "" where they
    are few. No run deletes what another has written."""
    runs = [path for path in RUNS.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    if len(runs) < _MANY:
        return ""
    size = sum(file.lstat().st_size for run in runs for file in run.rglob("*") if file.is_file())
    return f"{RUNS} has {len(runs)} runs, {size / 1e6:,.0f} MB; delete the folders that you no longer need"


def point_latest_to(folder: Path) -> None:
    """Let `latest`, beside this folder, point to it. Readers see the old link or the new one."""
    link, temporary = folder.with_name(LATEST), folder.with_name(f".{LATEST}.{os.getpid()}")
    temporary.symlink_to(folder.name)
    try:
        temporary.replace(link)
    finally:
        temporary.unlink(missing_ok=True)


def _existing(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    probe = out / f".writable.{os.getpid()}"
    probe.touch()
    probe.unlink()
    return out


def _new(runs: Path) -> Path:
    """A folder that nobody had, named after the time in UTC."""
    runs.mkdir(parents=True, exist_ok=True)
    name = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    number = 1
    while True:
        folder = runs / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            point_latest_to(folder)
            return folder


def _lock(folder: int, where: str) -> None:
    """The system releases the lock when the process ends, in whatever way."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait for it, or choose another folder"
        raise InputError("another run is writing there", where=where, hint=hint) from None
    except OSError:
        pass  # a file system without locks: nothing worse than before there were any


def _remove(folder: Path, last: str | None) -> None:
    """Remove the folder of a run that was none, and let `latest` point to the one before again."""
    with contextlib.suppress(OSError):  # somebody has put something into it
        (folder / LOGS).rmdir()
        folder.rmdir()
        link = folder.with_name(LATEST)
        if link.readlink().name == folder.name:
            point_latest_to(folder.with_name(last)) if last else link.unlink()
        folder.parent.rmdir()  # it was made for this run, or is not empty
