"""Disks that fill and files that cannot be written: it is said in one line, the table is printed, the run ends."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from products import daily, of_a_release
from pydantic import BaseModel

from encoder_conformance.commands.options import deliver
from encoder_conformance.platform.files import UnwritableError, replace_file
from encoder_conformance.reports.run.journal import Journal
from encoder_conformance.reports.run.reading import read_report

PROGRAM = Path(sys.executable).with_name("conform")
CASES = ("--case", "pre-gelu/mask-*", "--dtype", "float32")


def run_on_a_disk_of(kilobytes: int, folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`conform run` where no file can be larger: a write beyond that fails like one on a full disk. Bytecode would be
    cut too, and never compiled anew."""
    words = [PROGRAM, "run", "--impl", folder, *CASES, "--out", out]
    limited = ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", *words]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(limited, cwd=out.parent, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("kilobytes", daily([8], [0, 1, 8, 20, 40]))
def test_a_disk_that_fills(fake: Callable, tmp_path: Path, kilobytes: int) -> None:
    """The table has everything; the report on disk, if there is one, has whole records and says that it is not all."""
    out = tmp_path / "report"
    ended = run_on_a_disk_of(kilobytes, fake("good"), out)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"conform: {out}/")
    assert "File too large" in line
    [verdict] = [line for line in ended.stdout.splitlines() if " checks conform" in line]
    count, _, of = verdict.removeprefix("INCOMPLETE: ").partition(" of ")
    assert of.startswith(f"{count} checks conform")
    assert int(count) > 20
    if (out / "report.json").exists():
        assert read_report(out).complete is False
    for text in (out / "records.jsonl").read_text().splitlines():
        json.loads(text)


@pytest.mark.linux
@pytest.mark.parametrize("words", [("run",), of_a_release(("list", "cases")), of_a_release(("explain",))], ids=str)
def test_a_standard_output_that_is_full(honest: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The table has no place, which is said in one line; the report is there all the same."""
    run = ("--impl", honest, "--case", "pre-gelu/no-mask", "--out", "report")
    if words == ("explain",):
        subprocess.run([PROGRAM, "run", *run], cwd=tmp_path, capture_output=True, check=True)
    options = {"run": run, "explain": ("--out", "report", "--case", "pre-gelu/no-mask")}.get(words[0], ())
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [PROGRAM, *words, *options], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 3, ended.stderr
    assert ended.stderr == "conform: No space left on device: standard output\n"
    if words != ("list", "cases"):
        assert read_report(tmp_path / "report").complete


def make_folder(path: Path) -> None:
    path.mkdir(parents=True)


def make_dangling_link(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to("nowhere/at/all")


OBSTACLES = {
    "report.json-is-a-folder": ("report.json", make_folder, "Is a directory"),
    "records.jsonl-is-a-folder": ("records.jsonl", make_folder, "Is a directory"),
    "records.jsonl-leads-nowhere": ("records.jsonl", make_dangling_link, "No such file or directory"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_file_that_cannot_be_written(conform: Callable, honest: Path, tmp_path: Path, name: str) -> None:
    file, obstruct, said = OBSTACLES[name]
    obstruct(tmp_path / "report" / file)
    ended = conform("run", "--impl", honest, *CASES)
    assert ended.status == 3, ended.stdout + ended.stderr
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"conform: {ended.out / file}: {said}")
    assert "checks conform" in ended.stdout
    if file != "report.json":
        assert ended.report["complete"] is False


def test_logs_that_cannot_be_written_are_bad_input(conform: Callable, honest: Path, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "logs").write_text("")
    ended = conform("run", "--impl", honest, *CASES)
    assert ended.status == 2, ended.stdout + ended.stderr
    assert ended.stderr.startswith(f"conform: --out {ended.out}: cannot be written: File exists")


@pytest.mark.parametrize("there", ["report/logs/honest.log", "report/report.json.before"])
def test_a_folder_where_a_file_is_to_be_is_bad_input(
    conform: Callable, honest: Path, tmp_path: Path, there: str
) -> None:
    (tmp_path / there).mkdir(parents=True)
    (tmp_path / "report" / "report.json").write_text("an earlier run's")
    ended = conform("run", "--impl", honest, *CASES)
    assert (ended.status, "cannot be written: Is a directory" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("words", "status"), [(("list", "cases"), 3), (("explain", "--out", "nowhere"), 2), (("--help",), 3)]
)
def test_what_cannot_be_said_changes_no_status(tmp_path: Path, words: tuple[str, ...], status: int) -> None:
    """Standard output and standard error are full."""
    with Path("/dev/full").open("w") as full:
        command = [Path(sys.executable).with_name("conform"), *words]
        ended = subprocess.run(command, stdout=full, stderr=full, timeout=60, check=False, cwd=tmp_path)
    assert ended.returncode == status


def test_a_journal_ends_with_a_whole_line(tmp_path: Path) -> None:
    """/dev/full takes nothing: what is written later is not kept, and nothing raises."""
    (tmp_path / "full").symlink_to("/dev/full")
    journal = Journal(tmp_path / "full", 3)
    for number in range(3):
        journal.append(number, b"{}")
    journal.sync()
    journal.close()
    assert journal.problem == f"{tmp_path / 'full'}: No space left on device"
    assert [journal.read(number) for number in range(3)] == [None, None, None]


def test_a_journal_gives_back_what_was_appended_in_any_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", 4)
    for number in (2, 0, 3):
        journal.append(number, f"line {number}".encode())
    assert [journal.read(number) for number in (0, 2, 3)] == [b"line 0", b"line 2", b"line 3"]
    assert journal.read(1) is None
    journal.close()
    assert (tmp_path / "journal").read_bytes() == b"line 2\nline 0\nline 3\n"


@pytest.mark.linux
def test_a_device_or_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Root may replace any file: `conform summarize --junit /dev/stdout` in a container took /dev/stdout away."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(pipe, b"through it")
    assert os.read(reader, 100) == b"through it"
    os.close(reader)
    with pytest.raises(OSError, match="No space left on device"):
        replace_file(Path("/dev/full"), b"x")
    replace_file(Path("/dev/null"), b"x")
    assert pipe.is_fifo()
    assert all(Path("/dev", name).is_char_device() for name in ("full", "null"))
    (tmp_path / "file").write_text("old")
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]


class Found(BaseModel):
    number: int


def test_a_result_that_cannot_be_written_is_shown_all_the_same(tmp_path: Path) -> None:
    """`validate`, `check` and `diff` had computed for a minute, and said only that a disk was full."""
    shown: list[str] = []
    for path, said in (
        (Path("/dev/full"), "No space left"),
        (tmp_path, "Is a directory"),
        (Path("/proc/x"), "No such"),
    ):
        with pytest.raises(UnwritableError, match=said) as raised:
            deliver(path, Found(number=1), lambda: shown.append("shown"), as_json=False)
        assert raised.value.filename == str(path)
    assert len(shown) == 3


@pytest.mark.parametrize("to", ["/dev/full", "/proc/x/asked.safetensors", "."])
def test_questions_that_cannot_be_written_are_no_traceback(conform: Callable, to: str) -> None:
    ended = conform("ask", "--layer", "post-relu", "--dtype", "float16", "--to", to)
    assert ended.status in (2, 3)
    assert ended.stderr.count("\n") <= 4
    assert to in ended.stderr
    assert "Traceback" not in ended.stderr
