"""The wheel, and environments of its own for it."""

import subprocess
import sys
from pathlib import Path

import pytest
import wheels


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> wheels.Install:
    """A new environment with these packages; its folder."""

    def make(*packages: str | Path) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *map(str, packages)], check=True)
        return folder

    return make
