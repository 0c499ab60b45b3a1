"""Parts and the workers of a cluster, without a cluster: who gets what, and what a lost worker costs."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from encoder_conformance.commands.cluster.dispatch import MOST_LOSSES, Dispatched, Dispatcher
from encoder_conformance.commands.cluster.kept import KeptParts
from encoder_conformance.commands.cluster.worker import PlanPart, Result, RunQuestion, cases_of, judge, offer
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.judging.records import Report, Shard
from encoder_conformance.platform.files import replace_file
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.subjects.plan import asked_of, plan


class Fake:
    """Every part takes two looks. `dies`: worker → how many parts it begins before it is gone."""

    def __init__(self, can_run: dict[str, set[str]], dies: Mapping[str, int] | None = None) -> None:
        self.can_run, self.dies = can_run, dict(dies or {})
        self.started: list[tuple[str, str]] = []
        self.dropped: list[str] = []

    def workers(self) -> Mapping[str, frozenset[str]]:
        return {worker: frozenset(names) for worker, names in self.can_run.items()}

    def start(self, part: PlanPart, worker: str) -> "FakeRunning":
        assert part.implementation in self.can_run[worker]
        self.started.append((worker, part.name))
        return FakeRunning(self, part)

    def wait(self) -> None:
        for worker in list(self.dies):
            if sum(each == worker for each, _ in self.started) > self.dies[worker]:
                del self.dies[worker], self.can_run[worker]


class FakeRunning:
    def __init__(self, cluster: Fake, part: PlanPart) -> None:
        self.cluster, self.part, self.looks = cluster, part, 0

    def result(self) -> Result | None:
        self.looks += 1
        return Result(report=self.part.name) if self.looks > 1 else None

    def drop(self) -> None:
        self.cluster.dropped.append(self.part.name)


def dispatch(cluster: Fake, asked: list[PlanPart], say: Callable[[str], None]) -> Dispatched:
    """All that is kept is what there is at the end."""
    kept: dict[PlanPart, Result] = {}
    found = Dispatcher(cluster, asked, say, kept.__setitem__).run()
    assert kept == found.results
    return found


def parts(name: str, count: int) -> list[PlanPart]:
    return [
        PlanPart(implementation=name, shard=Shard(number=n, of=count), jobs=1, question=RunQuestion())
        for n in range(1, count + 1)
    ]


def test_each_part_goes_to_a_worker_that_can_run_it() -> None:
    cluster = Fake({"a": {"torch"}, "b": {"torch", "jax"}, "c": set()})
    asked = [*parts("torch", 3), *parts("jax", 2)]
    found = dispatch(cluster, asked, lambda _: None)
    assert set(found.results) == set(asked)
    assert not found.lost
    assert not found.given_up
    assert {worker for worker, name in cluster.started if name.startswith("jax")} == {"b"}


def test_a_lost_worker_costs_its_part_alone_which_another_judges() -> None:
    said: list[str] = []
    cluster = Fake({"a": {"torch"}, "b": {"torch"}}, dies={"a": 1})
    asked = parts("torch", 6)
    found = dispatch(cluster, asked, said.append)
    assert set(found.results) == set(asked)
    assert found.lost == ["a"]
    assert len(cluster.started) == len(asked) + 1, "more than one part was asked twice"
    assert [line for line in said if line.startswith("a is lost; torch ")]
    assert len(cluster.dropped) == 1


def test_what_nobody_can_run_any_more_and_what_ends_every_worker_is_given_up() -> None:
    found = dispatch(Fake({"a": {"jax"}, "b": {"torch"}}, dies={"a": 0}), [*parts("jax", 2), *parts("torch", 1)], print)
    assert set(found.results) == set(parts("torch", 1))
    assert set(found.given_up) == set(parts("jax", 2))
    workers = {f"w{number}": {"torch"} for number in range(MOST_LOSSES + 2)}
    [part] = parts("torch", 1)
    deadly = dispatch(Fake(workers, dies=dict.fromkeys(workers, 0)), [part], print)
    assert deadly.given_up == {part: f"it was lost {MOST_LOSSES} times, the last on w2"}
    assert len(deadly.lost) == MOST_LOSSES


def test_an_interrupt_drops_what_runs() -> None:
    class Interrupted(Fake):
        def wait(self) -> None:
            raise KeyboardInterrupt

    cluster = Interrupted({"a": {"torch"}})
    with pytest.raises(KeyboardInterrupt):
        dispatch(cluster, parts("torch", 2), print)
    assert cluster.dropped == ["torch 1/2"]


@pytest.mark.release
def test_a_part_is_judged_in_a_process_of_its_own(fake: Any) -> None:
    folder: Path = fake("layer")
    question = RunQuestion(globs=("pre-gelu/no-mask", "post-relu/no-mask"), dtypes=("float32",))
    half = PlanPart(implementation=str(folder), shard=Shard(number=1, of=2), jobs=1, question=question)
    result = judge(half, lambda: True)
    assert not result.problem
    report = Report.model_validate_json(result.report)
    assert report.complete
    assert len({record.case for record in report.records}) == 1
    assert judge(half, lambda: False) == Result(problem="nobody waits for it any more", lost=True)
    bad = judge(half.model_copy(update={"implementation": "nobody"}), lambda: True)
    assert "no implementation 'nobody'" in bad.problem
    offered = offer([str(folder), "nobody"], "cpu")
    assert [name.split(" ")[0] for name in offered.packages[str(folder)]][-1] == "adapter"
    assert "no implementation 'nobody'" in offered.absent["nobody"]


@pytest.mark.release
def test_an_interrupt_while_a_part_is_kept_costs_neither_it_nor_the_report(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = fake("layer")
    question = RunQuestion(globs=("pre-gelu/no-mask",), dtypes=("float32",))
    part = PlanPart(implementation=str(folder), shard=Shard(number=1, of=1), jobs=1, question=question)
    result = judge(part, lambda: True)
    _, implementation = find_implementation(str(folder))
    tasks = plan(implementation, asked_of(implementation, cases_of(question)), question.dtypes)
    kept = KeptParts(tmp_path / "out", [(implementation, tasks)], [], question)

    def interrupted(path: Path, data: bytes) -> None:
        replace_file(path, data)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("encoder_conformance.commands.cluster.kept.replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt), kept.closed_if_interrupted():
        kept.keep(part, result)
    assert {record.outcome.value for record in read_report(tmp_path / "out").records} == {"pass"}


def test_what_a_cluster_has_no_use_for_is_refused(conform: Any) -> None:
    for option, value in (("--budget", "30s"), ("--shard", "1/2"), ("--fail-fast", None)):
        words = [option, *([value] if value else [])]
        ended = conform("run", "--scheduler", "tcp://127.0.0.1:1", *words)
        assert (ended.status, f"{option}: is given together with --scheduler" in ended.stderr) == (2, True)
