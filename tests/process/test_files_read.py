"""What a module's worker tells that it has read, in a process of its own: its hook stays for good."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

BEFORE = """
import os, sys, tempfile
from pathlib import Path
from encoder_conformance.readers.module_target.files_read import FilesRead
read = FilesRead()
"""
AFTER = "\nprint(read.answer().model_dump_json())"


def _told(script: str, folder: Path) -> dict[str, Any]:
    (folder / "beside.py").write_text("")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "weights.bin").write_bytes(b"1")
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    program = [sys.executable, "-c", BEFORE + dedent(script) + AFTER]
    ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=60, check=True, env=environment)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("open('data/weights.bin').close()", "data/weights.bin"),
        ("open(b'data/weights.bin', 'rb').close()", "data/weights.bin"),
        ("os.chdir('data'); Path('weights.bin').read_bytes()", "data/weights.bin"),
        ("os.close(os.open('data/weights.bin', os.O_RDONLY))", "data/weights.bin"),
        ("try: open('absent.txt')\nexcept OSError: pass", "absent.txt"),
        ("sys.path.insert(0, '.'); import beside", "beside.py"),
        ("sys.path.insert(0, '.'); import beside; del sys.modules['beside']; import beside", "beside.py"),
    ],
)
def test_a_file_that_is_opened_or_imported_is_told(script: str, path: str, tmp_path: Path) -> None:
    told = _told(script, tmp_path)
    assert str(tmp_path / path) in told["files"]
    assert told["beyond"] == []


def test_a_folder_that_is_listed_is_told(tmp_path: Path) -> None:
    assert str(tmp_path / "data") in _told("os.listdir('data')", tmp_path)["folders"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("open('data/count.txt', 'a').close()", "count.txt is written"),
        ("Path('beside.py').write_text('1')", "beside.py is written"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("os.system('true')", "os.system"),
        ("import socket; s = socket.socket(); s.connect_ex(('127.0.0.1', 9))", "socket.connect"),
    ],
)
def test_what_may_differ_the_next_time_is_told(script: str, why: str, tmp_path: Path) -> None:
    [told] = _told(script, tmp_path)["beyond"]
    assert told.endswith(why)


@pytest.mark.parametrize(
    "script",
    [
        "sys.path.insert(0, '.'); import beside",
        "import subprocess; subprocess.run(['uname', '-p'], stdout=subprocess.PIPE)",
        "tempfile.TemporaryFile().close()",
    ],
)
def test_what_python_and_frameworks_do_by_themselves_is_nothing_beyond(script: str, tmp_path: Path) -> None:
    assert _told(script, tmp_path)["beyond"] == []
