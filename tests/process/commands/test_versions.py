"""`conform versions`: which versions, what is installed for each, and the trend that a real pip and real runs give."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encoder_conformance.commands.versions import environments as releases
from encoder_conformance.commands.versions.environments import (
    name_of,
    normal,
    package_of,
    requirements_of,
    with_version,
)
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.platform.errors import InputError

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
CHANGED_IN_2 = """
def output(self, x, masks, run):
    import toyframework
    right = super().output(x, masks, run)
    return right if toyframework.VERSION >= 2 else right * np.float32(np.nan)
"""


def test_a_series_counts_by_its_newest_version() -> None:
    versions = ("3.15.1", "3.15.0", "3.14.1", "3.9.0", "2.15.0.post1", "2.15.0")
    assert releases.newest_of_each_series(versions, 3) == ("3.9.0", "3.14.1", "3.15.1")
    assert releases.newest_of_each_series(versions, 9) == ("2.15.0.post1", "3.9.0", "3.14.1", "3.15.1")
    assert releases.named(versions, ("3.15.0", "2.15.0"), "toy") == ("2.15.0", "3.15.0")
    with pytest.raises(InputError, match=r"toy has no version 3\.15\.9"):
        releases.named(versions, ("3.15.9",), "toy")


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        ("toy (2.0)\nAvailable versions: 2.0, 1.1\n", "", None),
        ("", "ERROR: No matching distribution found for toy\n", "No matching distribution found for toy"),
        ("", "python: No module named pip\n", "has no pip"),
    ],
)
def test_what_pip_lists_and_that_it_lists_nothing(
    monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str, said: str | None
) -> None:
    ended = subprocess.CompletedProcess([], 0 if stdout else 1, stdout, stderr)
    monkeypatch.setattr(releases.subprocess, "run", lambda *_, **__: ended)
    if said is None:
        assert releases.released("toy") == ("2.0", "1.1")
    else:
        with pytest.raises(InputError, match=said):
            releases.released("toy")


def test_one_version_changes_and_the_other_pins_stay_unless_they_do_not_fit() -> None:
    requirements = ("numpy>=2.1", "Toy_Framework[cpu]==2.0", "other==1.0")
    assert with_version(requirements, "toy-framework", "1.1", loosened=False) == (
        "numpy>=2.1",
        "other==1.0",
        "Toy_Framework[cpu]==1.1",
    )
    assert with_version(requirements, "toy-framework", "1.1", loosened=True)[1] == "other"


def test_every_implementation_in_python_names_a_package_that_it_installs() -> None:
    checked = 0
    for name, folder in known_folders().items():
        manifest = read_implementation_manifest(folder)
        if manifest.command[0] == "python" and (folder / "requirements.txt").is_file() and name != "tensor_file":
            installed = {normal(name_of(line)) for line in requirements_of(manifest, folder)}
            assert normal(package_of(manifest)) in installed, name
            checked += 1
    assert checked > 20


def test_names_that_cannot_be_asked_are_refused(conform: Callable[..., Any], fake: Callable[..., Path]) -> None:
    assert "no implementation 'nobody'" in conform("versions", "nobody").stderr
    other = fake("other", command="[node, adapter.mjs]", requires="[]")
    ended = conform("versions", other)
    assert (ended.status, "is no Python adapter" in ended.stderr) == (2, True)


def wheel(folder: Path, version: str) -> None:
    """A package of one line, as pip installs it."""
    info = f"toyframework-{version}.dist-info"
    with zipfile.ZipFile(folder / f"toyframework-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("toyframework.py", f"VERSION = {version.split('.')[0]}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toyframework\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.release
def test_a_change_of_behaviour_is_found_between_versions_that_pip_installs(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "1.1", "2.0"):
        wheel(wheels, version)
    folder = fake("toy", CHANGED_IN_2, requires="[toyframework]")
    (folder / "requirements.txt").write_text("toyframework==2.0\n")
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PYTHONPATH": os.pathsep.join(filter(os.path.isdir, sys.path)),  # NumPy, which no index here has
    }
    asked = ("versions", folder, *CASES, "--out", tmp_path / "runs")
    ended = conform(*asked, "--json", env=environment)
    assert ended.status == 0, ended.stdout + ended.stderr
    trend = json.loads(ended.stdout)
    assert [each["version"] for each in trend["versions"]] == ["1.0", "1.1", "2.0"]
    sentences = [change["sentence"] for change in trend["changes"]]
    assert "since 2.0: conforms; before: out of line (not finite at output)" in sentences
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("report.json")}
    again = conform(*asked, env=environment)
    assert again.status == 0
    assert "since 2.0: conforms" in again.stdout
    assert kept == {path: path.stat().st_mtime_ns for path in kept}, "nothing changed, and it was asked again"
    assert conform(*asked, "--version", "9.9", env=environment).status == 2
    site = conform("report", *sorted((tmp_path / "runs").iterdir()), "--to", tmp_path / "site")
    assert site.status == 0, site.stderr
    page = (tmp_path / "site" / "implementations" / "toy--toyframework-2-0.html").read_text()
    assert "since toyframework-2.0: conforms; before: out of line (not finite at output)" in page
