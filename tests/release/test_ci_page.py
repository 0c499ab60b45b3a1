"""What docs/ci.md gives for tox, nox, pre-commit and pytest, copied into a repository of its own."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wheels import ROOT, Install, pinned_torch

pytestmark = [pytest.mark.release, pytest.mark.linux]

FILE = re.compile(r"^`(?P<name>[^`]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.M | re.S)
FILES = {file["name"]: file["text"] for file in FILE.finditer((ROOT / "docs/ci.md").read_text(encoding="utf-8"))}
WRONG = (ROOT / "docs/checking/model.py").read_text(encoding="utf-8")
RIGHT = WRONG.replace("eps=1e-3", "eps=1e-12")

Ended = subprocess.CompletedProcess[str]
Command = Callable[..., Ended]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a right module and all of the page's files."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, text in {**FILES, "model.py": RIGHT}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def command(repository: Path, wheel: Path, tmp_path: Path) -> Command:
    """Run a program in the repository. pip finds the wheel as if it were on the index."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(pinned_torch() + "\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOX_", "PYTEST_", "COV_"))}
    finds = {"PIP_FIND_LINKS": str(wheel.parent), "PIP_CONSTRAINT": str(constraints)}
    settings = {**kept, **finds, "PRE_COMMIT_HOME": str(tmp_path / "hooks")}

    def run(program: Path, *words: str) -> Ended:
        told = {"capture_output": True, "text": True, "check": False, "timeout": 1200}
        return subprocess.run([program, *words], cwd=repository, env=settings, **told)

    return run


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("tox", ["run", "-e", "conform"]),
        ("nox", ["--session", "conform", "--reuse-existing-virtualenvs"]),
        ("pre-commit", ["run", "--all-files"]),
    ],
)
def test_a_right_module_passes_and_a_wrong_one_fails(
    command: Command, repository: Path, install: Install, tool: str, words: list[str]
) -> None:
    program = install(tool) / "bin" / tool
    right = command(program, *words)
    assert right.returncode == 0, right.stdout + right.stderr
    (repository / "model.py").write_text(WRONG, encoding="utf-8")
    wrong = command(program, *words)
    assert wrong.returncode != 0
    assert "norm-eps-1e-3" in wrong.stdout + wrong.stderr


def test_pytest_tests_it(command: Command, repository: Path, wheel: Path, install: Install) -> None:
    program = install(f"{wheel}[torch]", pinned_torch(), "pytest") / "bin" / "pytest"
    assert command(program).returncode == 0
    (repository / "model.py").write_text(WRONG, encoding="utf-8")
    wrong = command(program)
    assert wrong.returncode == 1
    assert "norm-eps-1e-3" in wrong.stdout


def test_every_file_of_the_page_is_asked() -> None:
    assert set(FILES) == {"tox.ini", "noxfile.py", ".pre-commit-config.yaml", "test_model.py"}
    assert shutil.which("git")
