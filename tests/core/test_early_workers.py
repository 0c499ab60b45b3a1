"""Workers that start before the specification is read: a run takes them, and of the others nothing is left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.impl.interpreter import Ready, resolve
from encoder_conformance.impl.manifest import read_implementation
from encoder_conformance.worker.early import EarlyWorkers, early_workers, served_first
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import Limits

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
    log, limits = tmp_path / "logs" / "early.log", Limits()
    log.parent.mkdir()
    log.write_text("of an earlier run")
    with early_workers([Launch.of(ready, 1, log, limits)]) as early:
        assert log.read_text() == ""
        assert early.take(ready, 2, log, limits) is None
        assert log.read_text() == "of an earlier run"
        assert early.take(ready, 1, log, limits) is None
    assert [path.name for path in log.parent.iterdir()] == ["early.log"]


def test_a_worker_is_taken_once_and_its_log_is_the_new_one(ready: Ready, tmp_path: Path) -> None:
    log, limits = tmp_path / "logs" / "early.log", Limits()
    log.parent.mkdir()
    log.write_text("of an earlier run")
    with early_workers([Launch.of(ready, 1, log, limits)]) as early:
        worker = early.take(ready, 1, log, limits)
        assert worker is not None
        assert early.take(ready, 1, log, limits) is None
    assert worker.pid is not None
    assert lives(worker.pid)
    worker.end()
    assert not lives(worker.pid)
    assert [path.name for path in log.parent.iterdir()] == ["early.log"]
    assert "of an earlier run" not in log.read_text()


def test_nobody_is_left_where_the_block_fails(ready: Ready, tmp_path: Path) -> None:
    log, seen = tmp_path / "early.log", list[int]()

    def fail(early: EarlyWorkers) -> None:
        [(_, worker)] = early._waiting.values()
        assert worker.pid is not None
        seen.append(worker.pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), early_workers([Launch.of(ready, 1, log, Limits())]) as early:
        fail(early)
    assert not lives(seen[0])
    assert not log.exists()


def test_one_that_cannot_start_is_left_to_the_run(ready: Ready, tmp_path: Path) -> None:
    log = tmp_path / "early.log"
    log.write_text("of an earlier run")
    launch = Launch.of(ready, 1, log, Limits())
    nowhere = Launch(launch.command, tmp_path / "missing", launch.environment, log, launch.memory)
    with early_workers([nowhere]) as early:
        assert early.take(ready, 1, log, Limits()) is None
    assert log.read_text() == "of an earlier run"


def test_the_first_workers_are_those_that_a_run_would_start(fake: Callable) -> None:
    """First the longest tasks, which would else end last; then the shortest."""

    def with_run(name: str, seconds: str) -> Ready:
        folder = fake(name, timeouts=f"{{start: 60, build: 60, run: {seconds}}}")
        found = resolve(read_implementation(folder), folder, {})
        assert isinstance(found, Ready)
        return found

    ready = [with_run("a", "20"), with_run("b", "300"), with_run("c", "10")]
    names = [each.implementation.name for each in served_first(ready, 2)]
    assert names == ["b", "c"]
    assert served_first(ready, 0) == []


def test_an_interrupt_waits_until_a_report_can_say_so(ready: Ready, tmp_path: Path) -> None:
    with early_workers([Launch.of(ready, 1, tmp_path / "early.log", Limits())]) as early:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            early.interrupts.close()
