"""The generated files of docs/ and specs/ are what is generated today: `python -m tools pages` writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.pages import command
from tools.pages.command import GENERATED, drifted


def test_no_generated_file_has_drifted() -> None:
    assert [str(path) for path in drifted()] == []


def test_a_file_that_has_drifted_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    same, other, absent = (tmp_path / name for name in ("same.md", "other.md", "absent.md"))
    same.write_bytes(b"as made")
    other.write_bytes(b"edited")
    files = dict.fromkeys((same, other, absent), b"as made")
    monkeypatch.setattr(command, "GENERATED", {"three": lambda: files})
    assert list(drifted()) == [other, absent]


@pytest.mark.release
def test_the_command_checks_all_of_them_and_refuses_another_name(maintain: Callable) -> None:
    assert set(GENERATED) > {"schemas", "frames", "coverage", "findings", "performance"}
    checked = maintain("pages", "--check")
    assert checked.status == 0, checked.stdout + checked.stderr
    wrong = maintain("pages", "--check", "coverages")
    assert wrong.status == 2
    assert "coverage" in wrong.stderr
