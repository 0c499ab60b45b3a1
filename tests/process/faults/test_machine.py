"""What the machine lacks is said, with status 3, and nobody is accused of it; what cannot be shown is left out."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from shell import START, in_a_shell

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.platform import machine
from encoder_conformance.platform.errors import MachineError
from encoder_conformance.platform.machine import require_machine, require_null
from encoder_conformance.platform.paths import shown
from encoder_conformance.worker.guarded import GuardedProcess
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import WorkerLimits

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")


def test_closed_standard_streams_are_no_fault_of_a_worker(honest: Path, tmp_path: Path) -> None:
    ended = in_a_shell('"$@" <&- >&- 2>&-', "run", "--impl", honest, *ONE, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [record["outcome"] for record in report["records"]] == ["pass"] * 3
    assert report["complete"]


def test_a_verdict_outlives_its_reader_and_keeps_its_status(fake: Callable, tmp_path: Path) -> None:
    """A reader that goes away is no success of what was judged."""
    wrong = fake("wrong", "def output(self, x, masks, run):\n    raise ValueError('no')")
    words = ("run", "--impl", wrong, *ONE, "--verbose", "--out", "out")
    ended = in_a_shell('"$@" | true; exit ${PIPESTATUS[0]}', *words, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["complete"]


@pytest.mark.release
def test_an_output_that_lacks_characters_shows_the_others(honest: Path, tmp_path: Path) -> None:
    ended = in_a_shell('"$@"', "smoke", honest, cwd=tmp_path, PYTHONIOENCODING="cp1252")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Every step is right" in ended.stdout
    listed = in_a_shell('"$@"', "list", "deviations", "--json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert listed.stdout.isascii()
    plain = in_a_shell('"$@"', "list", "deviations", "--json", cwd=tmp_path, PYTHONIOENCODING="utf-8")
    assert json.loads(listed.stdout) == json.loads(plain.stdout)
    assert not plain.stdout.isascii()


def test_a_working_directory_that_was_deleted_is_not_needed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    ended = in_a_shell('rmdir "$PWD"; "$@"', "list", "cases", cwd=gone)
    assert (ended.returncode, "pre-gelu/no-mask" in ended.stdout) == (0, True), ended.stderr


def test_an_argument_or_a_folder_that_no_report_can_hold_is_refused(tmp_path: Path) -> None:
    """A file's name may be any bytes, and JSON is Unicode."""
    given = in_a_shell("\"$@\" --out $'a\\xff'", "run", cwd=tmp_path)
    assert (given.returncode, "is no UTF-8: a�" in given.stderr) == (2, True), given.stderr
    within = in_a_shell("mkdir $'b\\xff'; cd $'b\\xff'; \"$@\"", "list", "cases", cwd=tmp_path)
    assert (within.returncode, "the working directory: is no UTF-8" in within.stderr) == (2, True), within.stderr


@pytest.mark.release
def test_few_descriptors_are_said_and_nobody_is_accused(honest: Path, tmp_path: Path) -> None:
    ended = in_a_shell('ulimit -n 64; "$@"', "run", "--impl", honest, *ONE, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 3
    assert "only 64 files may be open at once here, and a worker needs 256: raise the limit (ulimit -n)" in ended.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["complete"], report["ended_by"]) == (False, "fault of the machine")
    assert {record["outcome"] for record in report["records"]} == {"not-run"}


@pytest.mark.release
def test_a_limit_that_may_be_raised_is(honest: Path, tmp_path: Path) -> None:
    ended = in_a_shell('ulimit -Sn 100; "$@"', "run", "--impl", honest, *ONE, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_a_full_disk_of_temporary_files_is_said(monkeypatch: pytest.MonkeyPatch) -> None:

    class Left:
        f_bavail = f_favail = 3
        f_frsize, f_files = 4096, 10

    require_machine()
    monkeypatch.setattr(machine.os, "statvfs", lambda _: Left)
    with pytest.raises(MachineError, match="is full, and temporary files have no other place"):
        require_machine()


SMALL = {
    "full-tmp": ("mount -t tmpfs -o size=256k tmpfs /tmp; head -c 300k /dev/zero > /tmp/fill", "/tmp is full"),
    "full-shm": (
        "mount -t tmpfs -o size=4k tmpfs /dev/shm; head -c 8k /dev/zero > /dev/shm/fill",
        "processes cannot share memory here (/dev/shm): [Errno 28] No space left on device",
    ),
    "read-only-shm": (
        "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm",
        "processes cannot share memory here (/dev/shm): [Errno 30] Read-only file system",
    ),
    "no-devices": (
        "mount -t tmpfs -o size=1m tmpfs /dev",
        "processes cannot share memory here (/dev/shm): [Errno 2] No such file or directory",
    ),
}


@pytest.mark.release
@pytest.mark.namespaces
@pytest.mark.parametrize("lacks", SMALL)
def test_what_a_real_file_system_lacks_is_said_and_nobody_is_accused(honest: Path, lacks: str) -> None:
    """In a namespace of its own, with a seed whose goldens several processes compute."""
    before, said = SMALL[lacks]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        words = ("run", "--impl", honest, *ONE[:-1], "2", "--seed", "3", "--out", "out")
        shell = f'unset TMPDIR; ({before}) 2> /dev/null; "$@"'
        program = ["unshare", "-Urm", "bash", "-c", shell, "bash", *START, *map(str, words)]
        ended = subprocess.run(program, cwd=place, capture_output=True, text=True, timeout=120, check=False)
        assert (ended.returncode, said in ended.stderr) == (3, True), ended.stderr
        report = Path(place, "out", "report.json")
        kept = json.loads(report.read_text())["records"] if report.exists() else []
        assert {record["outcome"] for record in kept} <= {"not-run"}


@pytest.mark.release
@pytest.mark.namespaces
def test_a_disk_that_fills_while_a_run_writes_is_said(honest: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        words = ("run", "--impl", honest, "--case", "pre-gelu/*", "--out", "small/out")
        small = "mkdir small; mount -t tmpfs -o size=64k tmpfs small"
        shell = f'{small}; "$@"; status=$?; cat small/out/report.json >&2; exit $status'
        program = ["unshare", "-Urm", "bash", "-c", shell, "bash", *START, *map(str, words)]
        ended = subprocess.run(program, cwd=place, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 3
        assert "No space left on device: not all of this run is on disk" in ended.stderr
        assert '"complete": true' not in ended.stderr.replace('"complete":true', '"complete": true')


def test_a_null_device_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_null()
    monkeypatch.setattr(machine.os, "devnull", str(tmp_path / "null"))
    with pytest.raises(MachineError, match="null cannot be opened: No such file or directory"):
        require_null()
    (tmp_path / "null").touch()
    with pytest.raises(MachineError, match="is no device"):
        require_null()


def test_a_guard_tells_the_machine_from_the_command(honest: Path, tmp_path: Path) -> None:
    """Its own system calls that fail are not the command's; a command that is not there is."""
    ready = Ready(read_implementation(honest, {}, ""), honest, ("/no/such/program",))
    missing = GuardedProcess(Launch.of(ready, 1, tmp_path / "log", WorkerLimits()))
    ending = missing.ending(30)
    missing.kill(), missing.close()
    assert ending is not None
    assert (ending.cannot_start, ending.unprepared) == ("No such file or directory", False)


SENT = """
import os, sys
from encoder_conformance.commands import program

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Sender())
program.main()
"""


@pytest.mark.parametrize("module", ["click", "pydantic", "pydantic._internal._generate_schema"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_is_imported_ends_it_with_a_line(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    script = SENT.format(module=module, number=int(number))
    words = [sys.executable, "-c", script, "run", "--case", "no/such", "--out", "out"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, "conform: interrupted; nothing had begun\n")
    assert not [*tmp_path.iterdir()]


def test_a_path_is_shown_whole_where_there_is_no_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(Path, "cwd", gone)
    assert shown(tmp_path) == str(tmp_path)
