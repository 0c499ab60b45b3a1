"""`conform compare`: two runs of one implementation, whose adapter changed in one way in between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

HONEST = ""
ANOTHER_ROUNDING = """
def output(self, x, masks, run):
    right = super().output(x, masks, run)
    return np.nextafter(right, right + 1) if right.size else right
"""
DIAGNOSIS = {
    "implementation": "layer",
    "dtype": "float64",
    "confidence": "explained",
    "deviations": ["norm-eps-1e-3"],
    "rms": 0.5,
    "first_stage": "norm1",
    "cases": ["pre-gelu/no-mask"],
}
CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float64")


@pytest.fixture
def ran(conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Run an implementation of one name, with this lie and these manifest's lines. Returns the run's folder."""
    numbers = iter(range(9))

    def run(lie: str = HONEST, **manifest: str) -> Path:
        number = next(numbers)
        folder = tmp_path / f"turn{number}" / "layer"
        folder.parent.mkdir()
        fake("layer", lie, **manifest).rename(folder)
        out = tmp_path / f"run{number}"
        conform("run", "--impl", folder, *CASES, "--out", out)
        return out

    return run


@pytest.fixture
def compared(conform: Callable[..., Any]) -> Callable[..., tuple[int, dict[str, int]]]:
    """The status of comparing two runs, and how many checks have which change."""

    def counts(*runs: Path) -> tuple[int, dict[str, int]]:
        ended = conform("compare", *runs, "--json")
        found: dict[str, int] = json.loads(ended.stdout)[-1]["counts"]["layer"]
        return ended.status, found

    return counts


def test_each_change_has_its_name(
    conform: Callable[..., Any], ran: Callable[..., Path], compared: Callable[..., tuple[int, dict[str, int]]]
) -> None:
    right, rounded, opted_out = ran(), ran(ANOTHER_ROUNDING), ran(checks="[output]")
    again = copied(right, "again", started="2026-11-01T00:00:00+00:00")
    output, *others = json.loads((right / "report.json").read_text())["records"]
    failed = {**output, "outcome": "fail", "digest": "0"}
    wrong = copied(right, "wrong", records=[failed, *others], diagnoses=[DIAGNOSIS])
    assert compared(right, again) == (0, {"same bits": 3})
    assert compared(right, rounded) == (0, {"within noise": 1, "same bits": 2})
    assert compared(right, opted_out) == (1, {"newly opted out": 2, "same bits": 1})
    assert compared(opted_out, right) == (0, {"not asked before": 2, "same bits": 1})
    assert compared(wrong, right) == (0, {"newly in line": 1, "same bits": 2})
    assert compared(wrong, copied(wrong, "still", started="now")) == (0, {"still out of line": 1, "same bits": 2})
    assert compared(right, copied(right, "fewer", records=[output])) == (0, {"same bits": 1, "not asked any more": 2})

    worse = conform("compare", right, wrong)
    assert worse.status == 1
    assert "newly out of line (1):" in worse.stdout
    assert "layer pre-gelu/no-mask float64 output: pass (" in worse.stdout
    assert "clauses, with how many of these checks cite each: " in worse.stdout
    assert "⇒ layer float64: " in worse.stdout
    assert worse.stdout.splitlines()[-1] == "Worse: 1 newly out of line; 2 same bits"

    many = conform("compare", right, wrong, again)
    assert many.status == 1
    assert f"{right} → {wrong}" in many.stdout
    assert "Nothing got worse: 1 newly in line, 2 same bits" in many.stdout.splitlines()
    trend = "1 check: since again: conforms; wrong: out of line by norm-eps-1e-3; before: conforms"
    assert trend in many.stdout

    later = copied(right, "later", environment={"seed": 3}, complete=False, started="later")
    other = conform("compare", right, later)
    assert other.status == 3
    assert "different inputs (seeds 0 and 3)" in other.stdout
    assert "The newer run is incomplete." in other.stdout
    assert other.stdout.splitlines()[-1].endswith(": 3 same outcome")


def test_a_declared_deviation_that_is_new_is_worse(ran: Callable[..., Path], compared: Callable[..., Any]) -> None:
    right = ran()
    records = json.loads((right / "report.json").read_text())["records"]
    declared = [{**record, "outcome": "deviates", "deviations": ["norm-eps-1e-3"]} for record in records]
    deviates = copied(right, "deviates", records=declared)
    assert compared(right, deviates) == (1, {"another deviation": 3})
    assert compared(deviates, right) == (0, {"fewer deviations": 3})
    assert compared(deviates, copied(deviates, "again", started="now")) == (0, {"same bits": 3})


def test_bad_input(conform: Callable[..., Any], ran: Callable[..., Path]) -> None:
    run = ran()
    newer, half = copied(run, "newer", version=99), copied(run, "half")
    (half / "report.json").write_text((run / "report.json").read_text()[:200])
    problems = {
        (run, run): "these are one run",
        (run,): "compare needs two runs",
        (run, newer): "is of format 99",
        (run, half): "is no report",
        (run, run.with_name("absent")): "cannot be read",
    }
    for runs, problem in problems.items():
        ended = conform("compare", *runs)
        assert ended.status == 2, runs
        assert problem in ended.stderr, runs


def copied(run: Path, name: str, **changes: Any) -> Path:
    """A run's report with other values; of `environment`, the values that are named."""
    report = json.loads((run / "report.json").read_text())
    changes["environment"] = report["environment"] | changes.get("environment", {})
    folder = run.with_name(name)
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(report | changes))
    return folder


TWICE = """
def stages(self, x, masks, run):
    found = super().stages(x, masks, run)
    return {**found, "norm1": found["norm1"] * 2}
"""


def test_failing_tensors_are_kept_where_that_is_asked(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    ended = conform(
        "run", "--impl", fake("layer", TWICE), *CASES, "--keep-failing", "--out", tmp_path / "run", diagnosed=False
    )
    assert ended.status == 1
    [file] = (tmp_path / "run" / "failing").rglob("*.safetensors")
    assert file.relative_to(tmp_path / "run" / "failing").as_posix() == (
        "layer/pre-gelu/no-mask.float64.stages.safetensors"
    )
    kept = load_file(file)
    assert {"norm1", "expected.norm1"} <= set(kept) <= {"norm1", "expected.norm1", "positions.norm1"}
    assert kept["norm1"].shape == kept["expected.norm1"].shape
    np.testing.assert_allclose(kept["norm1"], 2 * kept["expected.norm1"], rtol=1e-9)
    conform("run", "--impl", tmp_path / "layer", *CASES, "--out", tmp_path / "other", diagnosed=False)
    assert not (tmp_path / "other" / "failing").exists()


@pytest.mark.release
def test_what_differs_between_two_machines_is_said(
    conform: Callable[..., Any], ran: Callable[..., Path], tmp_path: Path
) -> None:
    here = ran()
    elsewhere = copied(here, "elsewhere", started="later", environment={"processor": "Another & Co", "cpus": 64})
    machine = json.loads((here / "report.json").read_text())["environment"]
    processor, cpus = machine["processor"], machine["cpus"]
    line = f"machine: processor {processor} → Another & Co, processors {cpus} → 64"
    ended = conform("compare", here, elsewhere, "--to", tmp_path / "pages")
    assert line in ended.stdout.splitlines()
    page = (tmp_path / "pages" / "changes.html").read_text()
    assert f"<p>Machine: processor {processor} → Another &amp; Co, processors {cpus} → 64.</p>" in page
    [found] = json.loads(conform("compare", here, elsewhere, "--json").stdout)
    assert found["machine"] == line.removeprefix("machine: ").split(", ")
    assert "machine: " not in conform("compare", here, copied(here, "again", started="later")).stdout
