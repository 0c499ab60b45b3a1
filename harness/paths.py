"""Where the specification and the implementations lie: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
SPECS = PACKAGE / "_specs" if (PACKAGE / "_specs").is_dir() else ROOT / "specs"
IMPLS = PACKAGE / "impls" if (PACKAGE / "impls").is_dir() else ROOT / "impls"


def shown(path: Path) -> str:
    """`path` as a user should read it: relative to where they stand, if it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
