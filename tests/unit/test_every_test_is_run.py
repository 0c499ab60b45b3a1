"""Every file of tests that needs a framework stands in an environment of tox: else nobody runs it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_of_tests_with_a_framework_is_in_an_environment() -> None:
    words = {Path(word).name for word in (ROOT / "tox.ini").read_text(encoding="utf-8").split()}
    files = {path.name for path in (ROOT / "tests" / "frameworks").glob("test_*.py")}
    assert files - words == set()
