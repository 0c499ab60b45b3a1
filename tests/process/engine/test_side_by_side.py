"""Workers side by side: of different implementations, and of one that has layers enough for more."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encoder_conformance.engine.scheduling import Pace, speed_beside

COUNTING = """
    def start(self, device, threads):
        (folder := __import__("pathlib").Path("started")).mkdir(exist_ok=True)
        (folder / str(os.getpid())).touch()
        return super().start(device, threads)

    def build(self, layer, parameters, dtype):
        with open(f"started/{os.getpid()}", "a") as built:
            built.write(layer["layer"] + " " + dtype + "\\n")
        return super().build(layer, parameters, dtype)
"""
MANY = ("--case", "*/no-mask", "--dtype", "float32", "--threads", "1")
"""One thread: a product of matrices rounds otherwise with more of them."""


def said(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(record["case"], record["check"], record["outcome"], record["rms"]) for record in report["records"]]


def built(folder: Path) -> list[list[str]]:
    """What each worker built."""
    return [path.read_text().splitlines() for path in (folder / "started").iterdir()]


@pytest.mark.release
def test_one_implementation_is_asked_by_several_workers_each_with_layers_of_its_own(
    conform: Callable, fake: Callable
) -> None:
    folder = fake("counting", COUNTING)
    ended = conform("run", "--impl", folder, *MANY, "--jobs", "2")
    assert ended.status == 0, ended.stdout
    workers = built(folder)
    assert len(workers) == 2
    assert all(workers)
    layers = [layer for worker in workers for layer in worker]
    assert len(layers) == len(set(layers)), "a layer was built twice"
    assert ended.report["environment"]["threads_per_worker"] >= 1
    logs = sorted(path.name for path in (ended.out / "logs").iterdir())
    assert logs == ["counting-2.log", "counting.log"]
    together = said(ended.report)
    assert said(conform("run", "--impl", folder, *MANY, "--jobs", "1").report) == together


def test_a_few_layers_are_not_worth_a_second_worker(conform: Callable, fake: Callable) -> None:
    folder = fake("few", COUNTING)
    ended = conform("run", "--impl", folder, "--case", "pre-gelu/no-mask", "--case", "post-relu/no-mask", "--jobs", "2")
    assert ended.status == 0
    assert len(built(folder)) == 1


def test_one_more_worker_has_to_save_time() -> None:
    """It takes its start, and shares what the parent leaves of a processor."""
    assert speed_beside(1, 0.1, 2) == pytest.approx(0.9 / 1.1)
    assert speed_beside(1, 0.7, 2) < 0.2
    assert speed_beside(2, 0.5, 2) == 0.0
    assert speed_beside(1, 0.1, 16) == 1.0


def test_what_a_framework_does_once_is_no_part_of_the_pace() -> None:
    """PyTorch imports a second of its modules with its first checkpoint; a second worker was started for it."""
    pace = Pace()
    for _ in range(3):
        pace.finished(1.0, 0.01)
    assert pace.seconds_for(100.0) == 0.0, "too early to tell"
    pace.finished(2.0, 1.0)
    assert pace.seconds_for(100.0) == pytest.approx(1.0)
    pace.finished(1.0, 0.05)
    assert pace.seconds_for(100.0) == pytest.approx(2.0)


def test_one_processor_is_the_parents(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", "pre-gelu/no-mask")
    assert ended.report["environment"]["threads_per_worker"] == max(1, (os.cpu_count() or 1) - 1)


@pytest.mark.release
def test_a_worker_that_ends_costs_its_own_check_and_the_others_go_on(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        if self.layer.layer == "pre-gelu":
            os._exit(3)
        return super().output(x, masks, run)
    """
    ended = conform("run", "--impl", fake("ending", lie), *MANY, "--jobs", "2", diagnosed=False)
    assert ended.status == 1
    lost = {record["case"] for record in ended.report["records"] if record["outcome"] == "crash"}
    assert lost == {"pre-gelu/no-mask"}
    assert ended.report["complete"]
