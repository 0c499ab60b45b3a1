"""docs/systems.md: every command on the page runs, and prints the words that stand beside it."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "systems.md"
LINES = re.findall(r"^\| (.+?) \| `conform (.+?)` \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_has_a_command() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    headings = 2 * sum(line == "| what | command | prints |" for line in rows)
    assert len(LINES) == len(rows) - headings >= 45


@pytest.mark.parametrize(("command", "words"), dict.fromkeys((command, words) for _, command, words in LINES))
def test_the_command_does_what_the_page_says(conform: Callable, command: str, words: str) -> None:
    ended = conform(*shlex.split(command))
    assert ended.status == 0, ended.stdout + ended.stderr
    assert words in ended.stdout
