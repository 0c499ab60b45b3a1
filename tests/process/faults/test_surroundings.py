"""What surrounds a command: variables, limits, links, other runs, signals. Where an honest adapter can be judged it is,
as ever; where it cannot, a sentence says why, the status is that of no verdict, and nobody is accused."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from shell import in_a_shell

CONFORM = Path(sys.executable).with_name("conform")
ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
MANY = ("--case", "p*", "--dtype", "float32", "--jobs", "1")
SOME = ("--case", "pre-gelu/*", *ONE[2:])
BEGUN = '"$@" & until [ -s out/records.jsonl ]; do kill -0 $! || break; sleep 0.05; done; '
"""It has judged something, and there is more to judge."""

JUDGED = {
    "no-home": 'env -u HOME "$@"',
    "home-is-root": 'HOME=/ "$@"',
    "no-folder-for-temporary-files": 'TMPDIR=$PWD/none "$@"',
    "a-file-for-temporary-files": 'touch t; TMPDIR=$PWD/t "$@"',
    "no-programs": 'PATH= "$@"',
    "unknown-locale": 'LC_ALL=xx_YY.foo "$@"',
    "posix-locale": 'LC_ALL=POSIX "$@"',
    "a-terminal-of-one-column": 'COLUMNS=1 TERM=none "$@"',
    "threads-that-are-none": 'OMP_NUM_THREADS=many "$@"',
    "a-wire-that-is-not-there": 'CONFORM_WIRE=99,98 "$@"',
    "small-stack": 'ulimit -s 128; "$@"',
    "links-in-circles": 'ln -s loop.py honest/loop.py; ln -s . honest/self; "$@"',
    "a-pipe-beside-the-adapter": 'mkfifo honest/data.py; "$@"',
    "a-name-that-turns-a-terminal": "touch honest/$'x\\e[31m\\n.py'; \"$@\"",
    "a-pipe-in-the-report-s-place": 'mkdir out; mkfifo out/report.json; "$@"',
    "modules-of-those-names-here": f'echo "raise SystemExit(9)" | tee json.py > numpy.py; shift 3; {CONFORM} "$@"',
    "a-clock-that-goes-back": 'PYTHONPATH=$PWD/back "$@"',
}
"""Fault → the shell that makes it. All of one check passes."""
GOES_BACK = """
import time

usual, asked = time.time, 0

def back():
    global asked
    asked += 1
    return usual() - 4e7 * (asked > 3)

time.time = back
"""

REFUSED = {
    "no-room-in-files": ('ulimit -f 0; "$@"', ONE, 3, "File too large: not all of this run is on disk"),
    "little-room-in-files": ('ulimit -f 8; "$@"', MANY, 3, "File too large: not all of this run is on disk"),
    "little-time": ('ulimit -St 1; "$@"', MANY, 3, "the processor time that a process has here is used up (ulimit -t)"),
    "an-adapter-out-of-time": (
        'echo "while True: pass" > honest/adapter.py; ulimit -t 5; "$@"',
        ONE,
        3,
        "a worker was ended by SIGKILL, and a process has 5 s of processor time here: raise the limit (ulimit -t)",
    ),
    "hangup": (BEGUN + "kill -HUP $!; wait $!", MANY, 3, "conform: interrupted; what was judged until then is in "),
    "the-adapter-is-a-pipe": (
        'rm honest/adapter.py; mkfifo honest/adapter.py; "$@"',
        ONE,
        2,
        "names the adapter 'adapter.py', which is not there",
    ),
    "links-in-circles-for-results": ('ln -s out b; ln -s b out; "$@"', ONE, 2, "--out out: cannot be written: "),
    "a-file-for-results": ('touch out; "$@"', ONE, 2, "Directory 'out' is a file"),
    "a-device-for-results": ('"$@" --out /dev/null', ONE, 2, "--out /dev/null: cannot be written: "),
    "a-long-name": ('"$@" --out $(printf %0300d)', ONE, 2, "cannot be written: File name too long"),
    "no-name": ('"$@" --out ""', ONE, 2, "is empty: name a file or folder"),
    "a-name-of-two-lines": ("\"$@\" --out $'a\\nb'", ONE, 2, "has a line break: 'a\\nb'"),
    "a-name-that-turns-a-terminal": (
        "\"$@\" --out $'a\\e[31m'",
        ONE,
        2,
        "has a character that a terminal obeys: a\ufffd[31m",
    ),
    "a-folder-that-turns-a-terminal": (
        "mkdir $'c\\e[31m'; cd $'c\\e[31m'; \"$@\"",
        ONE,
        2,
        "the working directory: has a character that a terminal obeys: ",
    ),
    "two-at-once": (
        BEGUN + 'kill -STOP $!; "$@"; second=$?; kill -CONT $!; wait $! && exit $second',
        SOME,
        2,
        "another run is writing there",
    ),
}
"""Fault → the shell that makes it, what is asked, the status, and what is said."""

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture
def place(honest: Path, tmp_path: Path) -> Path:
    """A folder with an honest adapter."""
    shutil.copytree(honest, tmp_path / "honest", ignore=shutil.ignore_patterns("*.log", "__pycache__"))
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "sitecustomize.py").write_text(GOES_BACK)
    return tmp_path


def outcomes(place: Path) -> set[str]:
    report = place / "out" / "report.json"
    return {record["outcome"] for record in json.loads(report.read_text())["records"]} if report.is_file() else set()


@pytest.mark.parametrize("fault", JUDGED)
def test_an_honest_adapter_is_judged_as_ever(place: Path, fault: str) -> None:
    ended = in_a_shell(JUDGED[fault], "run", "--impl", "./honest", *ONE, "--out", "out", cwd=place)
    assert (ended.returncode, outcomes(place)) == (0, {"pass"}), ended.stderr
    assert "\x1b" not in (place / "out" / "report.json").read_text()


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_judged_is_said_and_nobody_is_accused(place: Path, fault: str) -> None:
    shell, asked, status, said = REFUSED[fault]
    ended = in_a_shell(shell, "run", "--impl", "./honest", "--out", "out", *asked, cwd=place)
    assert (ended.returncode, said in ended.stderr) == (status, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not {character for character in ended.stderr if not character.isprintable()} - {"\n"}
    assert outcomes(place) <= {"pass", "not-run", "unsupported"}


@pytest.mark.parametrize("number", ["TSTP", "STOP"])
def test_a_run_that_is_stopped_goes_on(place: Path, number: str) -> None:
    """Ctrl-Z and fg."""
    shell = BEGUN + f"kill -{number} $!; sleep 1; kill -CONT $!; wait $!"
    ended = in_a_shell(shell, "run", "--impl", "./honest", *SOME, "--out", "out", cwd=place)
    assert (ended.returncode, outcomes(place)) == (0, {"pass"}), ended.stderr


@pytest.mark.sandbox
def test_a_machine_whose_system_calls_are_not_known_has_no_sandbox(place: Path) -> None:
    words = ("run", "--impl", "./honest", *ONE, "--isolate", "--out", "out")
    ended = in_a_shell('exec setarch i686 "$@"', *words, cwd=place)
    if os.uname().machine != "x86_64":
        pytest.skip("this is no machine that can call itself i686")
    assert (ended.returncode, "no filter of system calls is known for i686" in ended.stderr) == (2, True), ended.stderr
    assert not (place / "out").exists()
