"""Paths of the specification and the implementations: at the top of a checkout, inside the package in a wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "_specs").is_dir()
"""Whether this is what a wheel holds, and no checkout."""
ROOT = PACKAGE.parent if INSTALLED else PACKAGE.parents[1]
SPECS = PACKAGE / "_specs" if INSTALLED else ROOT / "specs"
IMPLS = PACKAGE / "impls" if INSTALLED else ROOT / "impls"
READERS = PACKAGE / "readers"
"""The workers that read what is no implementation: modules, ONNX files, files of tensors."""


def working_directory() -> Path:
    """The root of all where it was deleted: then no relative path names anything of the user's."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def shown(path: Path) -> str:
    """`path` for messages: relative to the working directory if it is below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):  # the working directory may have been deleted
        return str(path)
