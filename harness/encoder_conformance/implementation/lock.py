"""Locks: what an implementation's answers depend on, as one digest. While it is the same, no check is asked again."""

import hashlib
import sys
from functools import cache
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready, packages_of
from encoder_conformance.implementation.lookup import installed
from encoder_conformance.platform.paths import IMPLS, PACKAGE
from encoder_conformance.platform.processors import processor

_SHARED = IMPLS / "bases"
"""The code that the project's own adapters import beside their own folder."""
_SOURCES = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".txt", ".mjs", ".js"})


def lock_of(ready: Ready) -> str | None:
    """A digest of the adapter's folder, its command, the harness, the installed packages and the processor.

    None if it cannot be known: of other languages. Code that the adapter imports from elsewhere counts by the version
    of its package; an editable installation keeps its version.
    """
    arguments = ready.command[1:]
    packages = _installed(ready.interpreter) if ready.interpreter else None
    if packages is None:
        return None
    state = hashlib.sha256(repr((arguments, processor(), ready.implementation.chosen)).encode())
    state.update(packages.encode())
    for folder in (ready.folder, _SHARED, PACKAGE):
        state.update(source_digest(folder).encode())
    return state.hexdigest()[:16]


@cache
def _installed(interpreter: str) -> str | None:
    """The packages that an interpreter has installed; None if it cannot be asked."""
    if interpreter == sys.executable:
        return "\n".join(installed())
    return packages_of(interpreter)


@cache
def source_digest(folder: Path) -> str:
    """Digest of all source files below a folder. What lies in the package beside the harness is not a part of it."""
    state = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        beside = folder == PACKAGE and name.parts[0] in {"impls", "_specs"}
        if path.suffix in _SOURCES and not beside and path.is_file():
            state.update(f"{name}\0".encode())
            state.update(path.read_bytes())
    return state.hexdigest()
