"""`conform summarize`: a run as JUnit XML, Markdown, annotations and a badge."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

WRONG = """
def stages(self, x, masks, run):
    found = super().stages(x, masks, run)
    return {**found, "norm1": found["norm1"] * 2}
"""
HOSTILE = "a | b <script>alert(1)</script> **bold** `code`\n::error::forged 100%"


@pytest.fixture
def judge(conform: Callable[..., Any], fake: Callable[..., Path]) -> Callable[[str], Path]:
    """Judge three checks of a layer with this lie. Returns the run's folder."""

    def run(lie: str) -> Path:
        ended = conform("run", "--impl", fake("layer", lie), "--case", "pre-gelu/no-mask", "--dtype", "float64")
        return Path(ended.out)

    return run


@pytest.fixture
def run(judge: Callable[[str], Path]) -> Path:
    """A run that conforms."""
    return judge("")


@pytest.mark.release
def test_formats(conform: Callable[..., Any], judge: Callable[[str], Path], tmp_path: Path) -> None:
    run = judge(WRONG)
    junit, badge = tmp_path / "junit.xml", tmp_path / "badge.svg"
    files = ("--junit", junit, "--badge", badge, "--markdown", "-", "--annotations")
    ended = conform("summarize", run, *files)
    assert ended.status == 0, ended.stderr

    [suite] = JUnitXml.fromfile(str(junit))
    assert (suite.name, suite.tests, suite.failures, suite.errors, suite.skipped) == ("layer", 3, 1, 0, 0)
    [failure] = [result for case in suite for result in case.result]
    assert isinstance(failure, Failure)
    assert "norm1: rms" in failure.message
    assert "⇒ layer float64" in failure.text
    assert {case.classname for case in suite} == {"layer.pre-gelu"}

    assert "2 of 3" in badge.read_text()
    ElementTree.fromstring(badge.read_text())

    markdown, _, annotations = ended.stdout.partition("::error ")
    assert markdown.startswith("## ✗ 2 of 3 checks conform\n\n- **⇒ layer float64: ")
    assert "| layer | pre-gelu/no-mask | float64 | stages | fail |" in markdown
    at = re.match(r"file=layer/adapter.py,line=(\d+),title=layer float64%3A \w+::⇒ layer", annotations)
    assert at, annotations
    assert '"norm1"' in (tmp_path / "layer" / "adapter.py").read_text().splitlines()[int(at[1]) - 1]


def test_each_outcome_in_junit(conform: Callable[..., Any], run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    due = {
        "pass": (),
        "deviates": (),
        "unsupported": (Skipped,),
        "stale": (Failure,),
        "inconclusive": (Failure,),
        "fail": (Failure,),
        "error": (Error,),
        "crash": (Error,),
        "timeout": (Error,),
        "not-run": (Error,),
    }
    first = report["records"][0]
    report["records"] = [{**first, "case": f"layer/{name}", "outcome": name, "message": name} for name in due]
    report["complete"] = False  # a complete one has no check that was not run
    (run / "report.json").write_text(json.dumps(report))
    assert conform("summarize", run, "--junit", run / "junit.xml").status == 0
    [suite] = JUnitXml.fromfile(str(run / "junit.xml"))
    assert [tuple(map(type, case.result)) for case in suite] == list(due.values())
    report["ended_by"] = "budget"
    (run / "report.json").write_text(json.dumps(report))
    assert conform("summarize", run, "--junit", run / "junit.xml", "--markdown", run / "it.md").status == 0
    [suite] = JUnitXml.fromfile(str(run / "junit.xml"))
    assert [type(result) for result in list(suite)[-1].result] == [Skipped]
    assert (run / "it.md").read_text().startswith("## ✗ Incomplete, ended by the budget: ")


def test_markup_in_messages_is_text(conform: Callable[..., Any], run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    failed = [{**record, "outcome": "fail", "message": HOSTILE} for record in report["records"]]
    report["records"] = [{**record, "case": f"layer/{number}"} for number in range(40) for record in failed]
    report["diagnoses"] = []
    (run / "report.json").write_text(json.dumps(report))
    ended = conform("summarize", run, "--markdown", "-", "--annotations", "--junit", run / "junit.xml")
    assert ended.status == 0
    assert len(ended.stdout) < 60_000
    assert "<script>" not in ended.stdout.partition("::error")[0]
    assert [line for line in ended.stdout.splitlines() if line.startswith("::")] == [ended.stdout.splitlines()[-1]]
    assert "100%25" in ended.stdout
    assert len(list(next(iter(JUnitXml.fromfile(str(run / "junit.xml")))))) == 120


def test_bad_input(conform: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    assert "choose a format for: ✓ 3 of 3 checks conform" in conform("summarize", run).stderr
    assert conform("summarize", tmp_path / "absent", "--markdown", "-").status == 2
    (tmp_path / "file").write_text("")
    assert "cannot be written" in conform("summarize", run, "--junit", tmp_path / "file" / "junit.xml").stderr


@pytest.mark.parametrize("name", ["report.json", "records.jsonl"])
def test_a_run_is_not_replaced_by_its_summary(conform: Callable[..., Any], run: Path, name: str) -> None:
    before = (run / name).read_bytes()
    ended = conform("summarize", run, "--junit", run / "logs" / ".." / name)
    assert (ended.status, "is the run itself" in ended.stderr) == (2, True), ended.stderr
    assert (run / name).read_bytes() == before


def test_two_formats_have_two_files(conform: Callable[..., Any], run: Path, tmp_path: Path) -> None:
    ended = conform("summarize", run, "--junit", tmp_path / "one", "--badge", tmp_path / "one")
    assert (ended.status, "is named twice" in ended.stderr) == (2, True), ended.stderr
    assert not (tmp_path / "one").exists()
