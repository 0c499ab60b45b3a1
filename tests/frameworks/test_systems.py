"""docs/systems.md: every command runs, and gives the number that the page shows and the one that was published."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import pytest
from systems_page.answers import Answer, answers
from systems_page.lines import Line, Number, every_line, systems
from systems_page.numbers import read, same
from systems_page.page import PAGE, page

from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.plan import select

pytestmark = pytest.mark.xdist_group("systems")  # each command is asked once
TOX = Path(__file__).resolve().parents[2] / "tox.ini"
LINES = every_line()
PUBLISHED = [(line, number) for line in LINES for number in line.numbers if number.published is not None]
Answers = dict[str, Answer]


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str
    report: dict[str, Any]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("systems")
    stdout, stderr, report = folder / "stdout", folder / "stderr", folder / "report"

    def conform(*words: str) -> Ended:
        out = ["--out", str(report)] if words[0] == "run" else []
        stdout.write_text("")
        stderr.write_text("")
        status = forked.conform([*words, *out], folder, stdout, stderr, seconds=120)
        written = json.loads((report / "report.json").read_text(encoding="utf-8")) if out else {}
        return Ended(status, stdout.read_text(encoding="utf-8"), stderr.read_text(encoding="utf-8"), written)

    return answers(LINES, conform)


@pytest.mark.release  # two minutes for all lines
@pytest.mark.parametrize("line", [line for line in LINES if line.is_run], ids=lambda line: line.what)
def test_every_check_of_a_run_passes(answered: Answers, line: Line) -> None:
    records = answered[line.command].records
    assert {record["outcome"] for record in records} <= {"pass", "deviates"}
    assert records
    assert {name for record in records for name in record["deviations"]} == set(line.deviates)


@pytest.mark.release  # two minutes for all lines
@pytest.mark.parametrize(("line", "number"), PUBLISHED, ids=[f"{line.what}: {one.read}" for line, one in PUBLISHED])
def test_our_number_is_the_published_one(answered: Answers, line: Line, number: Number) -> None:
    ours = read(number, line, answered[line.command])
    assert same(ours, number.published) == (number.differs is None), ours


@pytest.mark.release  # two minutes for all lines
def test_the_page_shows_todays_numbers(answered: Answers) -> None:
    assert page(answered) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("line", [line for line in LINES if line.is_run], ids=lambda line: line.what)
def test_every_run_names_cases_and_an_implementation(line: Line) -> None:
    """What the lines show is asked for a release; that they can be asked is seen every time."""
    specification = load()
    assert select(specification.cases, tuple(line.options("case")), None)
    assert all(find_implementation(name) for name in line.options("impl"))


@pytest.mark.parametrize("line", [line for line in LINES if line.is_kept], ids=lambda line: line.what)
def test_what_a_kept_row_came_to_is_on_the_page_and_all_that_was_asked(line: Line) -> None:
    [number] = line.numbers
    ours = read(number, line, Answer())
    passed, asked = re.findall(r"\d+", ours)[:2]
    assert passed == asked
    assert int(asked) > 100
    assert f"| {ours} |" in PAGE.read_text(encoding="utf-8")


def test_the_environment_of_a_kept_row_is_one_of_tox() -> None:
    environments = [line.command.split()[-1] for line in LINES if line.command.startswith("tox -e ")]
    assert environments
    listed = TOX.read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name.removesuffix('-release')}\b", listed) for name in environments)


def test_every_line_stands_on_the_page() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    assert all(f"| {line.what} | `{line.command}` |" in shown for line in LINES)


def test_each_system_has_an_implementation_and_published_numbers_where_it_has_any() -> None:
    assert [system.title[:2] for system in systems()][:5] == ["A.", "B.", "C.", "D.", "E."]
    assert len(LINES) >= 45
    assert len(PUBLISHED) >= 30


@pytest.mark.parametrize(
    ("ours", "published", "agrees"),
    [
        ("3.12", "3.12", True),
        ("3.14", "3.12", False),
        ("256.00", "256", True),
        ("256.60", "256", False),
        ("[32, 50, 512]", "[32, 50, 512]", True),
        ("[32, 50, 512]", "[32, 8, 50, 64]", False),
        ("3,152,384", "3152384", True),
        ("none", "–", False),
    ],
)
def test_numbers_are_compared_and_not_words(ours: str, published: str, agrees: bool) -> None:
    assert same(ours, published) is agrees
