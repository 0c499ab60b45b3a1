"""Faults of ours in a diagnosis: each costs that diagnosis, is said in one sentence, and costs nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
WRONG = "def output(self, x, masks, run):\n    return 1.5 * super().output(x, masks, run)"
SAID = "conform itself failed in this diagnosis, which changes no verdict"
NO_RULE = ValueError("there is no rule for its gradient\nand more")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (NO_RULE, "ValueError: there is no rule for its gradient"),
        pytest.param(MemoryError(), "MemoryError", marks=pytest.mark.release),
    ],
    ids=["ValueError", "MemoryError"],
)
def test_a_fault_costs_one_diagnosis(
    conform: Callable, fake: Callable, tmp_path: Path, fault: Exception, error: str
) -> None:
    """The run goes on to the next implementation, and what does not conform does not conform."""
    names = ("one", "other")
    words = [word for name in names for word in ("--impl", fake(name, WRONG, checks="[output]"))]
    ended = conform("run", *words, *CASES, faults={"diagnosis.observations:diagnose_chosen": fault})
    assert ended.status == 1, ended.stderr
    assert ended.report["complete"] is True
    assert [each["fault"]["error"] for each in ended.report["diagnoses"]] == [error, error]
    for name, diagnosis in zip(names, ended.report["diagnoses"], strict=True):
        assert (diagnosis["implementation"], diagnosis["confidence"]) == (name, "unknown")
        assert diagnosis["cases"] == ["pre-gelu/no-mask"]
        assert f"⇒ {name} float32: Cause unknown: {SAID}: {error}." in ended.stdout
        kept = (ended.out / "logs" / f"{name}-diagnosis.log").read_text()
        assert kept == diagnosis["fault"]["trace"]
        assert kept.startswith("Traceback")
    assert f"unknown: {SAID}: {error}." in conform("explain").stdout
    assert conform("report", ended.out, "--to", tmp_path / "site").status == 0
    assert SAID in (tmp_path / "site" / "index.html").read_text()


def test_what_could_not_be_seen_costs_no_verdict(conform: Callable, fake: Callable) -> None:
    """All conforms, and the status is none of the two that a verdict has."""
    faults = {"diagnosis.observations:as_observed": NO_RULE}
    ended = conform("run", "--impl", fake("right", checks="[output]"), *CASES, faults=faults)
    assert ended.outcomes("output") == ["pass"]
    assert ended.status == 3
    assert f"⇒ right float32: Cause unknown: {SAID}: ValueError" in ended.stdout


@pytest.mark.release
def test_no_explanation_accounts_for_what_could_not_be_seen(conform: Callable, fake: Callable) -> None:
    epsilon = """
    def build(self, layer, *given, **more):
        return super().build({**layer, "norm": {**layer["norm"], "epsilon": 1e-3}}, *given, **more)
    """
    faults = {"diagnosis.observations:observe_gradients": NO_RULE}
    ended = conform("run", "--impl", fake("wrong", epsilon, checks="[output, gradients]"), *CASES, faults=faults)
    assert ended.status == 1
    named, lost = ended.report["diagnoses"]
    assert (named["confidence"], named["deviations"]) == ("closest", ["norm-eps-1e-3"])
    assert {"left": "pre-gelu/no-mask"} in [each["values"] for each in named["observed"]]
    assert lost["fault"]["error"].startswith("ValueError")


def test_a_run_that_the_harness_ended_is_not_complete(conform: Callable, fake: Callable) -> None:
    """Every check has its record, and nobody was told what is wrong."""
    faults = {"reports.run.collection:Collection.diagnose": RuntimeError("a fault")}
    ended = conform("run", "--impl", fake("wrong", WRONG, checks="[output]"), *CASES, faults=faults)
    assert ended.status == 3
    assert "the harness itself failed" in ended.stderr
    assert (ended.report["complete"], ended.report["ended_by"]) == (False, "fault of the harness")
    assert ended.outcomes("output") == ["fail"]
    assert "INCOMPLETE: 3 of 3 checks were judged (ended by the fault of the harness)." in conform("explain").stdout


UNSEEN = {"diagnosis.observations:as_observed": NO_RULE}
"""What is wrong happens while answers are kept for a diagnosis, and all answers are right."""


@pytest.mark.release
def test_smoke_says_what_it_could_not_see(conform: Callable, fake: Callable) -> None:
    folder = fake("right")
    ended = conform("smoke", folder, faults=UNSEEN)
    assert ended.status == 3, ended.stdout
    assert "Every step is right." in ended.stdout
    assert f"{SAID}: ValueError: there is no rule for its gradient" in ended.stdout
    assert "Traceback" in ended.stderr
    as_json = conform("smoke", folder, "--json", faults=UNSEEN)
    assert as_json.status == 3
    found = json.loads(as_json.stdout)
    assert found["verdict"] == "ok"
    assert SAID in found["lost"][0]


@pytest.mark.release
def test_smoke_says_it_where_a_step_failed(conform: Callable, fake: Callable) -> None:
    ended = conform("smoke", fake("wrong", WRONG), faults=UNSEEN)
    assert ended.status == 1
    said = [line for line in ended.stdout.splitlines() if SAID in line]
    assert said
    assert len(said) == len({*said})  # once for each format


@pytest.mark.release
def test_diff_says_it_too(conform: Callable, fake: Callable) -> None:
    ended = conform("diff", fake("one"), fake("other"), "--layer", "pre-gelu", "--out", "report", faults=UNSEEN)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert "They agree within" in ended.stdout
    assert SAID in ended.stdout


@pytest.mark.release
def test_smoke_says_it_too(conform: Callable, fake: Callable) -> None:
    ended = conform("smoke", fake("wrong", WRONG), faults={"commands.smoke.diagnosis:diagnose": NO_RULE})
    assert ended.status == 1
    assert f"→ {SAID}: ValueError: there is no rule for its gradient" in ended.stdout
    assert "Traceback" in ended.stderr
