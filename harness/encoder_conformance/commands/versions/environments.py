"""An environment for each version of a package: made once by pip, kept in the user's cache."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

from encoder_conformance.implementation.interpreter import ADAPTER_NEEDS
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.recent import cache_folder

_INSTALLED = "conform-installed.txt"
"""Written when everything is installed: an environment without it is made anew. It holds what was asked of pip."""
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?")


class NotInstalled(Exception):
    """An environment cannot be made; in the last line that pip said."""


def package_of(implementation: Implementation) -> str:
    """The package whose versions are judged."""
    return implementation.package or implementation.requires[0]


def requirements_of(implementation: Implementation, folder: Path) -> tuple[str, ...]:
    """The requirements of an environment: the folder's requirements.txt, or else the manifest's modules by name, and
    what every adapter needs."""
    try:
        lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return (*ADAPTER_NEEDS, *implementation.requires)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(folder / "requirements.txt")) from None
    found = tuple(line.strip() for line in lines if _NAME.match(line))
    named = {normal(name_of(line)) for line in found}
    return (*found, *(name for name in ADAPTER_NEEDS if name not in named))


def with_version(requirements: Iterable[str], package: str, version: str, *, loosened: bool) -> tuple[str, ...]:
    """The requirements with this version of the package. `loosened`: exact pins of other packages are dropped."""
    found, others = package, list[str]()
    for line in requirements:
        match = _NAME.match(line)
        with_extras = match[0].strip() if match else line
        if normal(name_of(line)) == normal(package):
            found = with_extras
        else:
            others.append(with_extras if loosened and "==" in line else line)
    return (*others, f"{found}=={version}")


def name_of(requirement: str) -> str:
    """The package that a line of requirements names."""
    match = _NAME.match(requirement)
    return match[1] if match else requirement


def normal(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def environment_for(implementation: Implementation, folder: Path, package: str, version: str) -> tuple[Path, bool]:
    """The interpreter of this version's environment, which is kept, and made if there is none; and whether other pins
    did not fit it and were dropped. Raises NotInstalled, and InputError if it cannot be kept."""
    cache = cache_folder("versions")
    if cache is None:
        raise InputError("cannot be written", where="the cache folder", hint="set XDG_CACHE_HOME")
    requirements = requirements_of(implementation, folder)
    pinned, loose = (with_version(requirements, package, version, loosened=each) for each in (False, True))
    name = f"{normal(package)}-{version}"
    try:
        return _kept(cache, name, pinned), False
    except NotInstalled:
        if loose == pinned:
            raise
    return _kept(cache, name, loose), True


def _kept(cache: Path, name: str, asked: tuple[str, ...]) -> Path:
    """Two implementations that ask for the same share an environment. Raises NotInstalled."""
    python_version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    text = "\n".join(sorted(asked)) + "\n"
    digest = hashlib.sha256(f"{sys.base_prefix}\n{text}".encode()).hexdigest()[:10]
    place = cache / f"{name}-{python_version}-{digest}"
    with (cache / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another command may be making it
        python = place / "bin" / "python"
        marker = place / _INSTALLED
        if marker.is_file() and python.exists():
            return python
        shutil.rmtree(place, ignore_errors=True)
        try:
            _install(place, asked)
            marker.write_text(text, encoding="utf-8")
        finally:
            if not marker.is_file():
                shutil.rmtree(place, ignore_errors=True)
    return python


def _install(place: Path, asked: tuple[str, ...]) -> None:
    """Make an environment. Raises NotInstalled."""
    venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(place)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "requirements.txt")
        file.write_text("\n".join(asked) + "\n", encoding="utf-8")
        python = str(place / "bin" / "python")
        ended = pip("--python", python, "install", "--no-compile", *WHEELS, "--requirement", str(file))
    if ended.returncode:
        raise NotInstalled(last_line(ended.stderr) or f"pip ended with status {ended.returncode}")


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
