"""The wheel as a stranger installs it: in five environments, none of which has the checkout."""

import email
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from wheels import REPOSITORY, ROOT, Install, pinned_torch

LARGEST = 8_000_000
"""Bytes of the wheel."""
SAMPLE = ("run", "--impl", "pytorch", "--case", "post-gelu/padding-right", "--case", "post-relu/no-mask")
"""The wheel has no golden of the first case, and the second's."""

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def bare(wheel: Path, install: Install) -> Path:
    return install(wheel)


@pytest.fixture(scope="module")
def with_torch(wheel: Path, install: Install) -> Path:
    return install(wheel, pinned_torch())


def conform(environment: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    command = [str(environment / "bin" / "conform"), *words]
    settings = {**kept, "HOME": str(folder), "COLUMNS": "120", **variables}
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= LARGEST


def test_an_index_shows_links_that_lead_somewhere(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = email.message_from_string(archive.read(name).decode())
    assert f"Homepage, {REPOSITORY}" in said.get_all("Project-URL", [])
    links = re.findall(r"\]\(([^)]+)\)", str(said.get_payload()))
    assert f"{REPOSITORY}/raw/v1/docs/pictures/sigma.svg" in links
    for link in links:
        assert link.startswith("https://"), link
        path = link.removeprefix(REPOSITORY).partition("/v1/")[2]
        assert (ROOT / path).exists(), link


def test_with_numpy_alone_it_asks_and_says_what_is_missing(bare: Path, tmp_path: Path) -> None:
    assert conform(bare, tmp_path, "list", "layers").returncode == 0
    asked = conform(bare, tmp_path, "ask", "--layer", "post-gelu", "--to", "asked.safetensors")
    assert asked.returncode == 0, asked.stderr
    run = conform(bare, tmp_path, "run")
    assert run.returncode == 2
    assert "pip install 'encoder-conformance[all]'" in run.stderr


def test_beside_torch_alone_it_runs_and_says_what_a_check_needs(with_torch: Path, tmp_path: Path) -> None:
    run = conform(with_torch, tmp_path, *SAMPLE)
    assert run.returncode == 0, run.stdout + run.stderr
    check = conform(with_torch, tmp_path, "check", "torch.nn:TransformerEncoderLayer", "--arg", "d_model=64")
    assert check.returncode == 2
    assert "pip install 'encoder-conformance[torch]'" in check.stderr


def test_in_an_environment_of_its_own_it_uses_the_active_one(bare: Path, with_torch: Path, tmp_path: Path) -> None:
    """As pipx and uvx install it."""
    assert conform(bare, tmp_path, *SAMPLE).returncode == 2
    run = conform(bare, tmp_path, *SAMPLE, VIRTUAL_ENV=str(with_torch))
    assert run.returncode == 0, run.stdout + run.stderr


def test_nothing_is_written_into_site_packages(with_torch: Path, tmp_path: Path) -> None:
    [package] = with_torch.glob("lib/python*/site-packages/encoder_conformance")
    before = contents(package)
    for path in [package, *package.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    run = conform(with_torch, tmp_path, *SAMPLE, PYTHONDONTWRITEBYTECODE="1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert contents(package) == before


def contents(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_without_a_checkout_a_backend_is_made_and_tried(bare: Path, tmp_path: Path) -> None:
    made = conform(bare, tmp_path, "new", "mine", "--framework", "numpy")
    assert made.returncode == 0, made.stderr
    smoke = conform(bare, tmp_path, "smoke", "./mine")
    assert smoke.returncode == 1, "its blanks are not filled in"
    assert "Traceback" not in smoke.stdout + smoke.stderr
    assert str(ROOT) not in smoke.stdout + smoke.stderr
