"""An interrupt at any step of a run's start and end: every thread that has been started ends."""

import dis
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import forked
import pytest
from products import daily

from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import read_implementation_manifest
from encoder_conformance.platform.pool import ThreadPool, in_order

WHERE = ("threading.py", "/futures/thread.py", "/futures/_base.py", "/engine/runner.py", "/platform/pool.py")
LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")
"""After these, Python looks whether a signal has arrived; and after no other."""


class ArrivesAt:
    """Lets a signal arrive at the step of this number, of those in which Python looks for one."""

    def __init__(self, step: int) -> None:
        self.left, self._last = step, dict[int, str]()
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(WHERE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.where:
            looks = self._last.get(id(frame), "").startswith(LOOKS)
            self._last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self.left -= looks
            if looks and self.left < 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGHUP)
        return self


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def at_every_step(kind: str, honest: Path, out: Path) -> None:
    """End this process: with status 0 if, wherever the signal arrives, every thread ends, and else with 1."""
    signal.signal(signal.SIGHUP, interrupt)
    for step in range(10_000):
        arrival = ArrivesAt(step)
        try:
            begin = KINDS[kind](honest, out)
            sys.settrace(arrival)
            begin()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        end = time.monotonic() + 5.0
        while len(sys._current_frames()) > 1:
            if time.monotonic() > end:
                print(f"after a signal at {arrival.where} a thread waits for ever", file=sys.stderr, flush=True)
                os._exit(1)
            time.sleep(0)
        if not arrival.where:
            os._exit(0)


def a_run(honest: Path, out: Path) -> Callable[[], object]:
    implementation = read_implementation_manifest(honest)
    both = [implementation.model_copy(update={"name": name}) for name in ("one", "other")]
    assignments = [Assignment(Ready(each, honest, ("python",)), []) for each in both]
    records = SuiteRun(assignments, lambda case: None, RunOptions(jobs=2), out).records()  # type: ignore[arg-type]
    return lambda: list(records)


def a_pool(honest: Path, out: Path) -> Callable[[], object]:
    def wait() -> None:
        with ThreadPool(2) as pool:
            assert list(in_order([pool.submit(int) for _ in range(3)])) == [0, 0, 0]

    return wait


KINDS = {"run": a_run, "pool": a_pool}


@pytest.mark.parametrize("kind", daily(["run"], KINDS))
def test_every_thread_ends_whenever_an_interrupt_arrives(honest: Path, tmp_path: Path, kind: str) -> None:
    process = forked.CONTEXT.Process(target=at_every_step, args=(kind, honest, tmp_path))
    process.start()
    process.join(60)
    process.kill()
    assert process.exitcode == 0
