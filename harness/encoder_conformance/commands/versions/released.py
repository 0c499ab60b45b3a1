"""The released versions of a package that can be installed here, as pip lists them."""

import subprocess
import sys
from collections.abc import Iterable, Sequence

from encoder_conformance.platform.errors import InputError, nearest

WHEELS = ("--only-binary", ":all:")
"""Nothing is built of sources: what has no wheel for this Python is left out."""


def released(package: str) -> tuple[str, ...]:
    """Versions that have a wheel for this Python, newest first; no pre-releases. Raises InputError."""
    ended = pip("index", "versions", *WHEELS, package)
    for line in ended.stdout.splitlines():
        label, _, listed = line.partition(":")
        if label.strip() == "Available versions":
            return tuple(version.strip() for version in listed.split(","))
    said = last_line(ended.stderr) or "pip lists no versions"
    raise InputError(f"has no versions that can be listed: {said}", where=f"package {package}", hint="--package")


def newest_of_each_series(versions: Iterable[str], last: int) -> tuple[str, ...]:
    """The newest version of each of the last series, oldest first. 3.14.1 is of the series 3.14. `versions`: newest
    first."""
    newest: dict[tuple[str, ...], str] = {}
    for version in versions:
        newest.setdefault(tuple(version.split(".")[:2]), version)
    return tuple(newest.values())[:last][::-1]


def named(versions: Sequence[str], wanted: Sequence[str], package: str) -> tuple[str, ...]:
    """The wanted versions, oldest first. Raises InputError for one that does not exist here."""
    for version in wanted:
        if version not in versions:
            raise InputError(
                f"{package} has no version {version} with a wheel for this Python",
                where="--version",
                hint=nearest(version, versions),
            )
    return tuple(version for version in reversed(versions) if version in wanted)


def pip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run this interpreter's pip. Raises InputError if it has none."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if "No module named pip" in ended.stderr:
        raise InputError("has no pip", where=sys.executable, hint=f"{sys.executable} -m ensurepip")
    return ended


def last_line(text: str) -> str:
    """The last line that says anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
