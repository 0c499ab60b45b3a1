"""Layer files that say what differs from a base (rule L-4)."""

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.paths import shown
from encoder_conformance.spec.strict import IDENTIFIER
from encoder_conformance.spec.yaml_file import EXTENSIONS

BASE = "base"
OWN = ("layer", "title", "source", "clauses", "family")
"""The keys that each file has for itself: what the layer is called, what it is for, and what it is asked."""

_LONGEST_ID = 200
"""Characters: a file's name has at most 255 bytes."""

Document = dict[str, Any]
Read = Callable[[Path], Document]


def lineage(path: Path, folder: Path, read: Read) -> tuple[Path, ...]:
    """The files whose keys make a layer: first the one that has no base, last `path`.

    A base is a layer of `folder`, or else a file beside the one that names it. Raises InputError for a base that is not
    there, and for a circle.
    """
    files = [path]
    while BASE in (document := read(files[0])):
        base = _file_of(document[BASE], files[0], folder)
        if base in files:
            raise _circle(files[: files.index(base) + 1])
        files.insert(0, base)
    return tuple(files)


def merged(files: tuple[Path, ...], read: Read) -> Document:
    """The keys of the last file over those of the files before it, which give none of `OWN`."""
    *bases, last = (read(path) for path in files)
    documents = [*({key: base[key] for key in base if key not in OWN} for base in bases), last]
    return {key: value for key, value in reduce(_over, documents).items() if key != BASE}


def _over(base: Document, own: Document) -> Document:
    """The keys of `own` in the place of those of `base`; where both have a mapping, key by key."""
    over = {
        key: _over(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in own.items()
    }
    return {**base, **over}


def _file_of(name: object, path: Path, folder: Path) -> Path:
    """The file of the layer that `path` names as its base. Raises InputError."""
    where = f"{shown(path)}: key {BASE}"
    if not isinstance(name, str) or len(name) > _LONGEST_ID or not re.fullmatch(IDENTIFIER, name):
        raise InputError(f"{name!r} is no layer's id", where=where, hint="write the id of one layer, such as pre-gelu")
    places = [place / f"{name}{extension}" for place in (folder, path.parent) for extension in EXTENSIONS]
    for place in places:
        if place.is_file():
            return place
    known = [each.stem for each in folder.iterdir() if each.suffix in EXTENSIONS]
    hint = f"{nearest(name, known)} (conform list layers; or a file beside this one)"
    raise InputError(f"there is no layer {name!r}", where=where, hint=hint)


def _circle(files: list[Path]) -> InputError:
    """The error of bases that lead back to where they began. `files`: the last names the one before it, and so on."""
    names = [path.stem for path in (*reversed(files), files[-1])]
    problem = f"{names[0]} is its own base" if len(files) == 1 else f"the bases are a circle: {' → '.join(names)}"
    hint = f"one of them has to say every key, without {BASE}"
    return InputError(problem, where=f"{shown(files[-1])}: key {BASE}", hint=hint)
