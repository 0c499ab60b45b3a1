"""Workers that start before the specification is read, and what a run does while it waits for them."""

import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from encoder_conformance.engine.head_start import HeadStart, first_served, head_start, next_item
from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import WorkerLimits

SAYS_THAT_IT_STARTS = 'os.write(2, b"started\\n")'
CASE = ("--case", "pre-gelu/no-mask", "--dtype", "float32")


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def ready(fake: Callable) -> Ready:
    folder = fake("early")
    found = resolve(read_implementation(folder), folder, {})
    assert isinstance(found, Ready)
    return found


def test_a_run_takes_the_worker_that_started_early(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("early", SAYS_THAT_IT_STARTS), *CASE, "--jobs", "1")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert (ended.out / "logs" / "early.log").read_text() == "started\n"
    assert sorted(path.name for path in (ended.out / "logs").iterdir()) == ["early.log"]


def test_one_that_is_asked_nothing_ends_with_the_run(conform: Callable, fake: Callable) -> None:
    other = fake("other", "os.write(2, str(os.getpid()).encode())", dtypes="[float64]")
    ended = conform("run", "--impl", other, "--impl", fake("asked"), *CASE, "--jobs", "2")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.outcomes(implementation="other") == ["unsupported"] * 3
    pid = (ended.out / "logs" / "other.log").read_text()
    assert not pid or not lives(int(pid))


def test_a_worker_that_would_start_otherwise_is_not_taken(ready: Ready, tmp_path: Path) -> None:
    log, limits = tmp_path / "logs" / "early.log", WorkerLimits()
    log.parent.mkdir()
    log.write_text("of an earlier run")
    with head_start([Launch.of(ready, 1, log, limits)]) as started:
        assert started.take(ready, 2, log, limits) is None
        assert started.take(ready, 1, log, limits) is None
    assert [path.name for path in log.parent.iterdir()] == ["early.log"]
    assert log.read_text() == "of an earlier run"


def test_a_worker_is_taken_once_and_its_log_is_the_new_one(ready: Ready, tmp_path: Path) -> None:
    log, limits = tmp_path / "logs" / "early.log", WorkerLimits()
    log.parent.mkdir()
    log.write_text("of an earlier run")
    with head_start([Launch.of(ready, 1, log, limits)]) as started:
        worker = started.take(ready, 1, log, limits)
        assert worker is not None
        assert started.take(ready, 1, log, limits) is None
    assert worker.pid is not None
    assert lives(worker.pid)
    worker.end()
    assert not lives(worker.pid)
    assert [path.name for path in log.parent.iterdir()] == ["early.log"]
    assert "of an earlier run" not in log.read_text()


def test_nobody_is_left_where_the_block_fails(ready: Ready, tmp_path: Path) -> None:
    log, seen = tmp_path / "early.log", list[int]()

    def fail(started: HeadStart) -> None:
        [(_, worker)] = started._waiting.values()
        assert worker.pid is not None
        seen.append(worker.pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), head_start([Launch.of(ready, 1, log, WorkerLimits())]) as started:
        fail(started)
    assert not lives(seen[0])
    assert not log.exists()


def test_one_that_cannot_start_is_left_to_the_run(ready: Ready, tmp_path: Path) -> None:
    log = tmp_path / "early.log"
    log.write_text("of an earlier run")
    launch = Launch.of(ready, 1, log, WorkerLimits())
    nowhere = Launch(launch.command, tmp_path / "missing", launch.environment, log, launch.memory)
    with head_start([nowhere]) as started:
        assert started.take(ready, 1, log, WorkerLimits()) is None
    assert log.read_text() == "of an earlier run"


def test_the_first_workers_are_of_the_longest_tasks_and_then_of_the_shortest() -> None:
    seconds = {"a": 20, "b": 300, "c": 10, "d": 20}
    assert first_served(list(seconds), seconds.__getitem__) == ["b", "c", "a", "d"]


def test_an_interrupt_waits_until_a_report_can_say_so(ready: Ready, tmp_path: Path) -> None:
    with head_start([Launch.of(ready, 1, tmp_path / "early.log", WorkerLimits())]) as started:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            started.interrupts.close()


def test_steps_are_taken_until_an_item_comes_and_go_on_at_the_next_wait() -> None:
    items, taken = queue.Queue[str](), list[int]()

    def steps() -> Iterator[None]:
        for step in range(5):
            taken.append(step)
            if step in (2, 4):
                items.put(f"after step {step}")
            yield

    left = steps()
    assert next_item(items, left) == "after step 2"
    assert taken == [0, 1, 2]
    assert next_item(items, left) == "after step 4"
    assert taken == [0, 1, 2, 3, 4]


def test_an_item_that_is_there_is_not_kept_waiting_by_a_step() -> None:
    items = queue.Queue[str]()
    items.put("first")
    assert next_item(items, iter(pytest.fail, None)) == "first"
