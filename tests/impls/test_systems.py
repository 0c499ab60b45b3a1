"""docs/systems.md: every command on the page runs, and prints the words that stand beside it."""

import re
import shlex
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "systems.md"
LINES = re.findall(r"^\| (.+?) \| `conform (.+?)` \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_has_a_command() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    headings = 2 * sum(line == "| what | command | prints |" for line in rows)
    assert len(LINES) == len(rows) - headings >= 45


COMMANDS = dict.fromkeys((command, words) for _, command, words in LINES)
OF_PYTORCH = "run --impl pytorch "
RUNS = [(shlex.split(command), words) for command, words in COMMANDS if command.startswith(OF_PYTORCH)]
LITERALLY = [
    pytest.param(command, words, marks=pytest.mark.release if command.startswith(OF_PYTORCH) else ())
    for command, words in COMMANDS
]
"""Each run starts a worker, and PyTorch: one run of each format asks what all of them do."""


@pytest.mark.parametrize(("command", "words"), LITERALLY)
def test_the_command_does_what_the_page_says(conform: Callable, command: str, words: str) -> None:
    ended = conform(*shlex.split(command))
    assert ended.status == 0, ended.stdout + ended.stderr
    assert words in ended.stdout


def test_the_runs_of_the_page_in_one_of_each_format(conform: Callable) -> None:
    """Of its cases: as many checks as each row says, and all passed."""
    formats = dict.fromkeys(dtype for words, _ in RUNS for dtype in options(words, "--dtype"))
    asked_for = {
        dtype: [words for words, _ in RUNS if dtype in (options(words, "--dtype") or formats)] for dtype in formats
    }
    records = []
    for dtype, runs in asked_for.items():
        globs = dict.fromkeys(glob for words in runs for glob in options(words, "--case"))
        ended = conform("run", "--impl", "pytorch", "--dtype", dtype, *(w for glob in globs for w in ("--case", glob)))
        assert ended.status == 0, ended.stdout + ended.stderr
        records += ended.report["records"]
    for words, said in RUNS:
        count = sum(
            any(fnmatchcase(record["case"], glob) for glob in options(words, "--case"))
            and record["dtype"] in (options(words, "--dtype") or formats)
            for record in records
        )
        assert count > 0, words
        assert said in f"{count} of {count} applicable checks passed", words


def options(words: list[str], name: str) -> list[str]:
    return [value for option, value in pairwise(words) if option == name]
