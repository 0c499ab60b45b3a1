"""`conform run --scheduler` on a real local cluster of three processes, one of which is killed at work."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

HONEST = Path(__file__).parents[1] / "fakes" / "honest"
CASES = ("--case", "p*/no-mask", "--case", "p*/causal*", "--dtype", "float64", "--dtype", "float32")
SLOW = """
import runpy, time
Honest = runpy.run_path({honest!r})["Honest"]

class Slow(Honest):
    def build(self, *given, **more):
        time.sleep(0.5)  # longer than it takes to find a worker at work, and to kill it
        return super().build(*given, **more)

if __name__ == "__main__":
    from encoder_conformance import serve
    serve(Slow())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as started:
        yield started


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    folder = shutil.copytree(HONEST, tmp_path / "slow", ignore=shutil.ignore_patterns("*.log"))
    manifest = folder / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("name: honest", "name: slow", 1))
    (folder / "adapter.py").write_text(SLOW.format(honest=str(HONEST / "adapter.py")))
    return folder


def keys(report: dict[str, Any]) -> set[tuple[str, ...]]:
    return {(each["implementation"], each["case"], each["dtype"], each["check"]) for each in report["records"]}


def test_a_killed_worker_costs_its_time_alone(
    cluster: LocalCluster, slow: Path, conform: Callable[..., Any], tmp_path: Path
) -> None:
    alone = conform("run", "--impl", slow, *CASES, "--out", tmp_path / "alone")
    assert alone.status == 0, alone.stderr
    command = [Path(sys.executable).with_name("conform"), "run", "--impl", slow, *CASES]
    command += ["--scheduler", cluster.scheduler_address, "--out", tmp_path / "together"]
    with (
        Client(cluster.scheduler_address) as client,
        subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run,
    ):
        pids = client.run(os.getpid)
        at_work: list[str] = []
        while not at_work and run.poll() is None:
            at_work = [worker for worker, parts in client.processing().items() if parts and worker in pids]
            time.sleep(0.05)
        assert at_work, run.communicate()
        os.kill(pids[at_work[0]], signal.SIGKILL)
        stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 0, stdout + stderr
    assert f"{at_work[0]} is lost; {slow} " in stderr
    assert "is asked again elsewhere" in stderr
    report = json.loads((tmp_path / "together" / "report.json").read_text())
    assert report["complete"]
    assert keys(report) == keys(json.loads((tmp_path / "alone" / "report.json").read_text()))
    assert conform("compare", tmp_path / "alone", tmp_path / "together").status == 0
    assert len({run["started"] for run in report["merged"]}) >= 1
    assert len(report["merged"]) > 1
    assert len(list((tmp_path / "together" / "parts").iterdir())) == len(report["merged"])


def test_what_no_worker_can_run_is_refused(cluster: LocalCluster, conform: Callable[..., Any], slow: Path) -> None:
    manifest = slow / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("requires: [numpy]", "requires: [no_such_framework]"))
    ended = conform("run", "--impl", slow, "--scheduler", cluster.scheduler_address)
    assert ended.status == 2
    assert "no worker can run it: no_such_framework not importable" in ended.stderr


def test_an_address_without_a_scheduler_is_refused(conform: Callable[..., Any], slow: Path) -> None:
    for address in ("tcp://127.0.0.1:1", "nowhere", "http://127.0.0.1:1"):
        ended = conform("run", "--impl", slow, "--scheduler", address)
        assert (ended.status, "cannot be reached" in ended.stderr) == (2, True), ended.stderr
