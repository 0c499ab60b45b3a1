"""The wheel as release.yml builds it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://example.org/of/all"
"""Where it says that it was published, as v1."""
Install = Callable[..., Path]
"""Packages → the folder of a new environment that has them."""


def build(folder: Path) -> Path:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HATCH_")}
    published = {"CONFORM_REPOSITORY": REPOSITORY, "CONFORM_REF": "v1"}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=plain | published)
    [wheel] = folder.glob("*.whl")
    return wheel


def pinned_torch() -> str:
    """The requirement that installs a build for the processor."""
    [pinned] = [line for line in (ROOT / "impls/pytorch/requirements.txt").read_text().split() if "torch" in line]
    return pinned
