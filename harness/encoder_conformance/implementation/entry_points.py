"""Discovers implementations that installed packages offer by entry points, without importing these packages.

[project.entry-points."encoder_conformance.implementations"]
my_backend = "my_package.conformance.my_backend"        # the folder, as a dotted path, that holds impl.yaml
"""

import importlib.util
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from encoder_conformance.platform.errors import InputError

GROUP = "encoder_conformance.implementations"


def discover(reserved: Collection[str], check: Callable[[Path], object]) -> tuple[dict[str, Path], dict[str, str]]:
    """Name → folder of each usable implementation, and name → reason, with its package, of each unusable one.

    `reserved`: names in use already. `check` raises InputError for a folder without a valid implementation.
    """
    folders: dict[str, Path] = {}
    left_out: dict[str, str] = {}
    for offer in sorted(entry_points(group=GROUP), key=lambda offer: (offer.name, _package(offer))):
        try:
            if offer.name in reserved or offer.name in folders:
                raise InputError("another implementation has this name", hint="rename the folder and the entry point")
            folder = _folder(offer)
            check(folder)
            folders[offer.name] = folder
        except InputError as problem:
            reason = "; ".join(line.strip() for line in problem.lines())
            left_out[offer.name] = f"{_package(offer)} offers {offer.name}, which is left out: {reason}"
    return folders, left_out


def _folder(offer: EntryPoint) -> Path:
    """The folder of the value `a.b.c`. Only `a` is looked up, which executes nothing; `b/c` is a path below it."""
    top, *below = offer.value.split(".")
    try:
        spec = importlib.util.find_spec(top) if offer.value.replace(".", "").isidentifier() else None
    except ValueError:  # a module that was imported without a spec
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec else []
    folder = next((found for place in places if (found := Path(place, *below)).is_dir()), None)
    if folder is None:
        hint = f"the entry point's value is the dotted path of the folder that holds impl.yaml (group {GROUP})"
        raise InputError(f"there is no folder {offer.value!r}", hint=hint)
    if folder.name != offer.name:
        raise InputError(f"the folder is called {folder.name!r}", hint="give the entry point the folder's name")
    return folder


def _package(offer: EntryPoint) -> str:
    return f"{offer.dist.name} {offer.dist.version}" if offer.dist else "a package without a name"
