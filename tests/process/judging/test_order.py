"""The sharpest question first, and runs that end early: what they have shown, and what they say they have not."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import Exclusion, excludes, sharpest_first
from encoder_conformance.judging.core.sensitivity import read_sensitivity
from encoder_conformance.judging.records import Record
from encoder_conformance.platform.paths import IMPLS
from encoder_conformance.spec.load import load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.plan import plan, select

OURS = ("pytorch", "keras_tf", "jax_pure", "onnx_pytorch")
FIRST = 10
"""Checks within which a wrong epsilon is to fail."""
EPSILON = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-3})})
    return held
"""
HANGS = """
def output(self, x, masks, run):
    self.asked = getattr(self, "asked", 0) + 1
    if self.asked > 3:
        signal.pause()
    return super().output(x, masks, run)
"""


@cache
def asked_in_order(name: str) -> list[Task]:
    tasks = plan(read_implementation(IMPLS / name), select(load().cases, (), "core"))
    return [task for block in sharpest_first(tasks) for task in block]


def key(task: Task) -> tuple[str, ...]:
    return task.case.id, task.dtype, task.check


@pytest.mark.parametrize("name", OURS)
def test_every_task_is_asked_once(name: str) -> None:
    tasks = plan(read_implementation(IMPLS / name), select(load().cases, (), "core"))
    ordered = asked_in_order(name)
    assert len(ordered) == len(tasks)
    assert set(map(key, ordered)) == set(map(key, tasks))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("epsilon", ["norm-eps-1e-3", "norm-eps-missing"])
def test_a_wrong_epsilon_is_seen_within_the_first_checks(name: str, epsilon: str) -> None:
    table = read_sensitivity()
    first = [task for task in asked_in_order(name) if task.opt_out is None][:FIRST]
    assert any(epsilon in table.names(excludes(task, table)) for task in first)


@pytest.mark.parametrize("name", OURS)
def test_most_is_excluded_at_once(name: str) -> None:
    """After the first ten checks no more than a quarter of what can be seen in float64 and float32 is left."""
    table = read_sensitivity()
    first = [task for task in asked_in_order(name) if task.opt_out is None][:FIRST]
    for dtype in ("float64", "float32"):
        shown = 0
        for task in first:
            shown |= excludes(task, table) if task.dtype == dtype else 0
        assert shown.bit_count() >= 0.75 * table.in_format(dtype).bit_count()


def passed(task: Task, outcome: Outcome = Outcome.PASS) -> Record:
    return Record(
        implementation=task.implementation.name,
        case=task.case.id,
        level=task.case.level,
        dtype=task.dtype,
        check=task.check,
        outcome=outcome,
    )


def test_what_passes_excludes_and_what_does_not_pass_excludes_nothing() -> None:
    tasks = [task for task in asked_in_order("pytorch") if task.dtype == "float32"]
    exclusion, none = (Exclusion("pytorch", ["float32"], shows_all_stages=True) for _ in range(2))
    for task in tasks:
        exclusion.add(task.case, passed(task))
        none.add(task.case, passed(task, Outcome.DEVIATES))
    due = read_sensitivity().in_format("float32").bit_count()  # those that any case sees
    assert exclusion.count == (due, due)
    assert exclusion.shown().not_cited == none.shown().not_cited
    assert none.count == (0, due)


def test_stages_that_are_shown_in_part_exclude_nothing() -> None:
    [whole] = [t for t in asked_in_order("pytorch") if (t.case.id, t.dtype) == ("pre-gelu/large-mean", "float32")][1:2]
    assert whole.check == "stages"
    part = whole.implementation.capabilities.model_copy(update={"stages": ("norm1", "output")})
    implementation = whole.implementation.model_copy(update={"capabilities": part})
    assert excludes(whole, read_sensitivity())
    assert not excludes(Task(implementation, whole.case, whole.dtype, whole.check, None), read_sensitivity())


@pytest.mark.release
def test_fail_fast_ends_at_the_first_case_that_fails_diagnosed(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("epsilon", EPSILON), "--fail-fast", "--dtype", "float32", "--jobs", "1")
    assert ended.status == 1
    report = ended.report
    asked = [record for record in report["records"] if record["outcome"] not in ("not-run", "unsupported")]
    assert len(asked) <= FIRST
    assert (report["ended_by"], report["complete"]) == ("first failure", False)
    assert [diagnosis["deviations"] for diagnosis in report["diagnoses"]] == [["norm-eps-1e-3"]]
    assert "ENDED BY THE FIRST FAILURE" in ended.stdout


@pytest.mark.release
def test_fail_fast_of_what_conforms_ends_as_ever(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--fail-fast", "--case", "pre-gelu/no-mask")
    assert (ended.status, ended.report["complete"], ended.report["ended_by"]) == (0, True, None)


@pytest.mark.release
def test_a_budget_ends_a_run_that_hangs_and_says_what_was_not_reached(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("hangs", HANGS), "--budget", "6s", "--dtype", "float32", "--jobs", "1")
    assert ended.status == 3, ended.stdout + ended.stderr
    outcomes = set(ended.outcomes())
    assert outcomes == {"pass", "not-run", "unsupported"} or outcomes == {"pass", "not-run"}
    assert ended.report["ended_by"] == "budget"
    [shown] = ended.report["shown"]
    assert 0 < len(shown["not_excluded"]) < shown["deviations"]
    assert "known bugs: " in ended.stdout
    assert "does not cover " in ended.stdout
    assert "ENDED BY THE BUDGET" in ended.stdout


@pytest.mark.release
@pytest.mark.parametrize(("budget", "said"), [("0.001s", "are over before a worker has answered"), ("soon", "no time")])
def test_a_budget_that_cannot_be_kept_is_said_in_a_line(
    conform: Callable, honest: Path, budget: str, said: str
) -> None:
    ended = conform("run", "--impl", honest, "--budget", budget)
    assert ended.status == 2
    assert said in ended.stderr


def test_the_last_lines_say_what_was_asked_of_how_much_and_the_command_for_all(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", "pre-gelu/no-mask", "--dtype", "float32")
    in_format = [case for case in load().cases.values() if "float32" in case.situation.dtypes]
    assert f"Asked 1 of {len(in_format)} cases." in ended.stdout
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("All ")]
    assert "--level optional" in line
    assert "--case" not in line
    assert "on this machine" in line


@pytest.mark.release
def test_other_numbers_exclude_nothing_that_was_measured(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", "pre-gelu/no-mask", "--dtype", "float32", "--seed", "1")
    assert ended.status == 0
    assert ended.report["shown"] == []


def test_of_several_implementations_each_has_its_line_when_it_is_done(
    conform: Callable, fake: Callable, honest: Path
) -> None:
    both = ("--impl", honest, "--impl", fake("epsilon", EPSILON))
    ended = conform("run", *both, "--case", "pre-gelu/no-mask", "--dtype", "float32", diagnosed=False)
    before_the_matrix = ended.stdout.partition("case, rms σ")[0]
    assert "honest: 3 of 3 checks conform, largest rms" in before_the_matrix
    assert "epsilon: 0 of 3 checks conform, largest rms" in before_the_matrix
