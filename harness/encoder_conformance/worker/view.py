"""What a sandbox shows: the system's programs and libraries, this harness, the specification without its goldens, the
implementations, what the user has named, and what a named interpreter needs. No word of a manifest's adds to it."""

import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import IMPLS, PACKAGE, SPECS

_SYSTEM = tuple(
    map(
        Path,
        (
            "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives",
            "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system/cpu",
        ),
    )
)  # fmt: skip
_MOST_LINKS = 40
"""The links that lead to a program, as the kernel counts them."""


class SandboxView:
    """Places that are shown where they are, and what of them is covered."""

    def __init__(self, places: Iterable[Path], hidden: Iterable[Path]) -> None:
        """`hidden`: folders of which no place shows anything, by whatever path it leads there."""
        shown = dict.fromkeys(each for place in places for each in (place.absolute(), place.resolve()))
        self._real = {place: place.resolve() for place in sorted(shown) if place.exists()}
        self.covers = tuple(sorted({place for folder in hidden for place in self._leading_to(folder.resolve())}))
        self._links: dict[Path, str] = {}

    def shows(self, path: Path) -> bool:
        """Whether a path is there, as it is written."""
        above = (path, *path.parents)
        bound = [place for place in above if place in self._real]
        covered = [place for place in above if place in self.covers]
        return path in self._links or len(str(bound[0] if bound else "")) > len(str(covered[0] if covered else ""))

    def follow(self, program: str) -> None:
        """Show the links that lead to a program, and the program itself."""
        path = Path(os.path.normpath(program))
        for _ in range(_MOST_LINKS):
            if not path.is_symlink():
                break
            target = str(path.readlink())
            if not self.shows(path):
                self._links[path] = target
            path = Path(os.path.normpath(path.parent / target))
        if path.is_absolute() and path.is_file() and not self.shows(path):
            self._real[path] = path.resolve()

    def options(self) -> Iterator[str]:
        """bubblewrap's, a folder before what lies in it."""
        for place in sorted({*self._real, *self.covers}):
            if place in self.covers:
                yield from ("--tmpfs", str(place))
            elif not any(self.shows(above) for above in place.parents):
                yield from ("--ro-bind", str(self._real[place]), str(place))
        for link, target in self._links.items():
            yield from ("--symlink", target, str(link))

    def _leading_to(self, folder: Path) -> Iterator[Path]:
        """The paths by which places show a folder."""
        for place, real in self._real.items():
            if folder.is_dir() and folder != real and folder.is_relative_to(real):
                yield place / folder.relative_to(real)


def view_of(ready: Ready, needed: Iterable[str]) -> SandboxView:
    """The view of an implementation, whose interpreter needs these places.

    Raises InputError where the folder that the user has named, or that of a model, is a home or holds one.
    """
    named = [ready.folder]
    for value in ready.implementation.chosen.values():
        if Path(value).is_absolute() and Path(value).is_file():  # a model, with its external data beside it
            named.append(Path(value).parent)
    for folder in named:
        if _holds_a_home(folder):
            hint = "put what is to be judged into a folder of its own"
            raise InputError("is a home, or holds one, and a sandbox would show it", where=str(folder), hint=hint)
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    places = [place for place in map(Path, (*needed, *libraries)) if not _holds_a_home(place)]
    # Of this harness, and of one that is installed where the implementation's packages are (paths.py).
    specs = (SPECS, *(place / "encoder_conformance" / "_specs" for place in places))
    hidden = [*(each / "golden" for each in specs), *(home for home in _homes() if home not in _SYSTEM)]
    return SandboxView([*_SYSTEM, PACKAGE, IMPLS, SPECS, *named, *places], hidden)


def _homes() -> set[Path]:
    """The user's home: the one that the environment says, and the one that the system knows."""
    homes = {Path(os.environ["HOME"])} if os.environ.get("HOME") else set[Path]()
    with suppress(KeyError):
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return {home.resolve() for home in homes if home.is_absolute()}


def _holds_a_home(place: Path) -> bool:
    return any(home.is_relative_to(place.resolve()) for home in _homes())
