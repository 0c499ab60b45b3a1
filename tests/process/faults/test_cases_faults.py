"""Faults that were once taken for the implementation's: streams that are closed, an output without the characters, few
descriptors, a folder that is gone, and a verdict of before that stands. Each in several commands, with what is due.

Of hostile adapters in a sandbox see test_untrusted_page.py, of a cluster tests/cluster.
"""

import json
import shutil
from pathlib import Path

import pytest
from shell import in_a_shell

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
RUN = ("run", "--impl", "./honest", *ONE, "--out", "out")
SMOKE = ("smoke", "./honest")
EXPLAIN = ("explain", "--out", "before")
JUDGED, RIGHT, NONE = "3 of 3 checks conform", "Every step is right", "Nothing failed in this run"
IN = 'PYTHONIOENCODING={0} "$@" | iconv -f {0} -t utf-8; exit ${{PIPESTATUS[0]}}'
ABLE = {
    "streams-closed-run": ('"$@" <&- 2>&-', RUN, JUDGED),
    "all-streams-closed-run": ('"$@" <&- >&- 2>&-', RUN, ""),
    "streams-closed-smoke": ('"$@" <&- 2>&-', SMOKE, RIGHT),
    "streams-closed-explain": ('"$@" <&- 2>&-', EXPLAIN, NONE),
    "western-run": (IN.format("cp1252"), RUN, JUDGED),
    "western-smoke": (IN.format("cp1252"), SMOKE, RIGHT),
    "cyrillic-explain": (IN.format("koi8-r"), EXPLAIN, NONE),
    "ascii-run": ('LC_ALL=C PYTHONUTF8=0 PYTHONIOENCODING=ascii "$@"', RUN, JUDGED),
    "no-folder-list": ('mkdir gone; cd gone; rmdir ../gone; "$@"', ("list", "cases"), "pre-gelu/no-mask"),
    "no-folder-implementations": ('mkdir gone; cd gone; rmdir ../gone; "$@"', ("list", "impls"), "pytorch"),
    "no-folder-trace": ('mkdir gone; cd gone; rmdir ../gone; "$@"', ("trace", "--layer", "pre-gelu"), "norm1"),
}
"""Fault → the shell that makes it, the command, and what it prints all the same."""
FEW = "files may be open at once here, and a worker needs 256: raise the limit (ulimit -n)"
LACKING = {
    "few-descriptors-run": ('ulimit -n 64; "$@"', RUN),
    "few-descriptors-smoke": ('ulimit -n 100; "$@"', SMOKE),
    "few-descriptors-profile": ('ulimit -n 200; "$@"', ("profile", "--impl", "./honest", "--layer", "pre-gelu")),
}
"""Fault → the shell that makes it, and the command: it ends with status 3."""
BEGUN = '"$@" & until [ ! -e out/report.json ]; do kill -0 $! || break; sleep 0.05; done; '
ENDED = {
    "killed": BEGUN + "kill -KILL $!; wait $!",
    "terminated": BEGUN + "kill -TERM $!; wait $!",
    "no-room": '(ulimit -f 0; "$@")',
}
"""What ends a run into the folder of an earlier one."""

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture
def place(honest: Path, tmp_path: Path) -> Path:
    """A folder with an honest adapter, and the green run of before."""
    shutil.copytree(honest, tmp_path / "honest", ignore=shutil.ignore_patterns("*.log", "__pycache__"))
    ended = in_a_shell('"$@"', *RUN[:-1], "before", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return tmp_path


@pytest.mark.parametrize("fault", ABLE)
def test_the_command_does_what_it_does(place: Path, fault: str) -> None:
    shell, words, said = ABLE[fault]
    ended = in_a_shell(shell, *words, cwd=place)
    assert (ended.returncode, said in ended.stdout) == (0, True), ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    if words is RUN:
        report = json.loads((place / "out" / "report.json").read_text())
        assert ([record["outcome"] for record in report["records"]], report["complete"]) == (["pass"] * 3, True)


@pytest.mark.parametrize("fault", LACKING)
def test_what_is_lacking_is_the_machine_s_and_nobody_is_accused(place: Path, fault: str) -> None:
    shell, words = LACKING[fault]
    ended = in_a_shell(shell, *words, cwd=place)
    assert (ended.returncode, FEW in ended.stderr) == (3, True), ended.stdout + ended.stderr
    for word in ("crash", "does not conform", "Traceback"):
        assert word not in ended.stdout + ended.stderr


@pytest.mark.parametrize("end", ENDED)
def test_no_verdict_of_before_stands(place: Path, end: str) -> None:
    (place / "before").rename(place / "out")
    many = ("run", "--impl", "./honest", "--case", "p*", *ONE[2:], "--out", "out")
    ended = in_a_shell(ENDED[end], *many, cwd=place)
    assert ended.returncode in (3, 137, -9), ended.stderr
    report = place / "out" / "report.json"
    assert not report.is_file() or not json.loads(report.read_text())["complete"]
