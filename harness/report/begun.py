"""The folder of a run from its first moment on: no report of an earlier run is ever taken for this one's."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from encoder_conformance.errors import InputError
from encoder_conformance.report.folder import LATEST, LOGS, NAME, RUNS, point_latest_to, run_folder

EARLIER = f"{NAME}.before"
"""An earlier run's report, until this one has planned its checks."""


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


def _remove(folder: Path, last: str | None) -> None:
    """Remove the folder of a run that was none, and let `latest` point to the one before again."""
    with contextlib.suppress(OSError):  # somebody has put something into it
        (folder / LOGS).rmdir()
        folder.rmdir()
        link = folder.with_name(LATEST)
        if link.readlink().name == folder.name:
            point_latest_to(folder.with_name(last)) if last else link.unlink()
        folder.parent.rmdir()  # it was made for this run, or is not empty
