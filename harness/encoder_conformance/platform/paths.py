"""Paths of the specification and the implementations: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
SPECS = PACKAGE / "_specs" if (PACKAGE / "_specs").is_dir() else ROOT / "specs"
IMPLS = PACKAGE / "impls" if (PACKAGE / "impls").is_dir() else ROOT / "impls"


def shown(path: Path) -> str:
    """`path` for messages: relative to the working directory if it is below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
