"""A cluster of four processes, of which one is killed, stopped, cut off from the others, or back after two seconds, at
two moments of a run: nothing that was judged is lost, nothing is said that is not so, and nothing hangs.

The seconds for which silence is borne are fewer here, in the client and in the workers. Each process reaches the others
through relays (relay.py). A part has no network: it talks with its worker by pipes, and cannot be cut off.
"""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from relay import Relay, Relays

HONEST = Path(__file__).parents[1] / "fakes" / "honest"
CASES = ("--case", "p*/no-mask", "--dtype", "float32")
DASK = str(Path(sys.executable).with_name("dask"))
CLIENT = """
from encoder_conformance.commands.cluster import dask_cluster
dask_cluster.SECONDS_OF_SILENCE, dask_cluster.SECONDS_UNTIL_SAID, dask_cluster.SECONDS_FOR_A_WORKER = 8.0, 3.0, 5.0
from encoder_conformance.commands.program import main
main()
"""
WORKER = "from encoder_conformance.commands.cluster import worker\nworker.SECONDS_WITHOUT_LIFE = 20\n"
SLOW = """
import runpy, time
Honest = runpy.run_path({honest!r})["Honest"]

class Slow(Honest):
    def build(self, *given, **more):
        time.sleep({seconds})  # longer than it takes to find a part at work
        return super().build(*given, **more)

if __name__ == "__main__":
    from encoder_conformance import serve
    serve(Slow())
"""


@dataclass
class Cluster:
    """Processes by their place, and the run's folder."""

    folder: Path
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    client: subprocess.Popen[bytes]
    relays: dict[int, list[Relay]]
    """Of a process: all that it says to the others, and they to it, goes through these."""

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def until(self, condition: Callable[[], object], seconds: float = 60) -> object:
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, self.said
            time.sleep(0.02)
        return found

    def part(self) -> psutil.Process | None:
        """The process of a part, which a worker has begun."""
        for worker in self.workers:
            with suppress(psutil.Error):  # it has ended meanwhile
                for child in psutil.Process(worker.pid).children():
                    if "encoder_conformance.commands.cluster.part_command" in child.cmdline():
                        return child
        return None

    def process(self, place: str) -> psutil.Process:
        """The process of this place; of several workers, one that is at work."""
        part = self.until(self.part)
        assert isinstance(part, psutil.Process)
        pids = {"client": self.client.pid, "scheduler": self.scheduler.pid, "worker": part.ppid(), "part": part.pid}
        return psutil.Process(pids[place])

    def cut(self, process: psutil.Process) -> None:
        """Cut its network. That of the scheduler is everybody's."""
        for relay in self._relays_of(process):
            relay.cut()

    def mend(self, process: psutil.Process) -> None:
        for relay in self._relays_of(process):
            relay.mend()

    def reset(self, process: psutil.Process) -> None:
        """It is cut for so long that its connections end."""
        for relay in self._relays_of(process):
            relay.reset()

    def _relays_of(self, process: psutil.Process) -> list[Relay]:
        return self.relays.get(process.pid) or [*itertools.chain(*self.relays.values())]


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A scheduler, two workers and a client, which has just begun. Parametrized: the seconds that a build takes."""
    seconds = getattr(request, "param", 0.3)
    slow = shutil.copytree(HONEST, tmp_path / "slow", ignore=shutil.ignore_patterns("*.log"))
    (slow / "impl.yaml").write_text((slow / "impl.yaml").read_text().replace("name: honest", "name: slow", 1))
    (slow / "adapter.py").write_text(SLOW.format(honest=str(HONEST / "adapter.py"), seconds=seconds))
    (tmp_path / "preload.py").write_text(WORKER)
    file = tmp_path / "scheduler.json"
    with ExitStack() as stack:

        def started(*words: str) -> subprocess.Popen[bytes]:
            with (tmp_path / "said" if words[0] == sys.executable else Path(os.devnull)).open("ab") as said:
                process = subprocess.Popen(words, cwd=tmp_path, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
            stack.callback(ended, process)
            return process

        (tmp_path / "said").touch()
        scheduler = started(DASK, "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        preload = str(tmp_path / "preload.py")
        told = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--preload", preload)
        made = Cluster(tmp_path, scheduler, [], scheduler, {})
        made.until(lambda: file.is_file() and file.read_text().strip().endswith("}"))
        address = json.loads(file.read_text())["address"]
        relays = stack.enter_context(Relays())
        for _ in range(2):
            out, own = relays.to(address), free_address()
            into = relays.to(own)
            reached = ("--listen-address", own, "--contact-address", into.address)
            made.workers.append(started(DASK, "worker", out.address, *reached, *told))
            made.relays[made.workers[-1].pid] = [out, into]
        connected(address, 2)
        out = relays.to(address)
        words = ("run", "--impl", str(slow), *CASES, "--scheduler", out.address, "--out", "out")
        made.client = started(sys.executable, "-c", CLIENT, *words)
        made.relays[made.client.pid] = [out]
        yield made


def free_address() -> str:
    """For a process that has to be told where to listen."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


def connected(address: str, workers: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=60)


def ended(process: subprocess.Popen[bytes]) -> None:
    for each in (*psutil.Process(process.pid).children(recursive=True), process) if process.poll() is None else ():
        with suppress(psutil.Error):
            each.send_signal(signal.SIGKILL)
    process.wait()


MOMENTS = {"begun": lambda cluster: cluster.part(), "after-a-part": lambda cluster: "judged by" in cluster.said}
PLACES = ("client", "scheduler", "worker", "part")
FAULTS = ("killed", "stopped", "cut", "back", "mended", "reset", "timed-out", "interrupted", "ended")
SIGNALS = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "ended": signal.SIGTERM}
SILENT = r"the scheduler .* does not answer; it has 8 s\n(.*\n)*.*has not answered for 8 s"
GONE = r"the scheduler .* (is gone|does not answer); it has 8 s\n(.*\n)*.*has been gone for 8 s"
QUIET = r"has not been heard of for 3 s; it has 8 s\n(.*\n)*.* is lost; .* is asked again elsewhere"
EXPECTED = {
    ("client", "killed"): (-signal.SIGKILL, ""),
    ("client", "cut"): (3, SILENT),
    ("client", "back"): (0, ""),
    ("client", "mended"): (0, ""),
    ("client", "reset"): (0, "is asked again elsewhere"),
    ("client", "timed-out"): (3, "has been gone for 8 s"),
    ("client", "interrupted"): (3, "conform: interrupted; "),
    ("client", "ended"): (3, "conform: interrupted; "),
    ("scheduler", "killed"): (3, GONE),
    ("scheduler", "stopped"): (3, SILENT),
    ("scheduler", "cut"): (3, SILENT),
    ("scheduler", "back"): (0, ""),
    ("scheduler", "mended"): (0, ""),
    ("scheduler", "reset"): (3, "are given up|is given up"),
    ("scheduler", "timed-out"): (3, "has been gone for 8 s"),
    ("worker", "killed"): (0, "is asked again elsewhere"),
    ("worker", "stopped"): (0, QUIET),
    ("worker", "cut"): (0, QUIET),
    ("worker", "back"): (0, ""),
    ("worker", "mended"): (0, ""),
    ("worker", "reset"): (0, "is asked again elsewhere"),
    ("worker", "timed-out"): (0, "is asked again elsewhere"),
    ("part", "killed"): (0, "its process was ended by signal 9; "),
    ("part", "stopped"): (0, r"its process showed no life for 20 s; .* is asked again elsewhere"),
    ("part", "back"): (0, ""),
}
TRIED = [
    (moment, place, fault)
    for moment, place, fault in itertools.product(MOMENTS, PLACES, FAULTS)
    if (place, fault) in EXPECTED
]


@pytest.mark.parametrize(("moment", "place", "fault"), TRIED)
def test_nothing_that_was_judged_is_lost(cluster: Cluster, moment: str, place: str, fault: str) -> None:
    cluster.until(lambda: MOMENTS[moment](cluster))
    struck = cluster.process(place)
    if fault in SIGNALS:
        struck.send_signal(SIGNALS[fault])
    elif fault in ("cut", "mended", "reset", "timed-out"):
        cluster.cut(struck)
    else:
        struck.suspend()
    if fault in ("back", "mended", "reset", "timed-out"):
        time.sleep(2)  # the fault itself
    if fault == "back":
        struck.resume()
    if fault in ("reset", "timed-out"):
        cluster.reset(struck)
    if fault in ("mended", "reset"):
        cluster.mend(struck)
    status, said = EXPECTED[place, fault]
    assert cluster.client.wait(timeout=120) == status, cluster.said
    assert re.search(said, cluster.said), cluster.said
    assert "Traceback" not in cluster.said
    out = cluster.folder / "out"
    report = json.loads((out / "report.json").read_text())
    assert report["complete"] == (status == 0)
    judged = {
        (record["case"], record["check"])
        for part in (out / "parts").glob("*/report.json")
        for record in json.loads(part.read_text())["records"]
    }
    kept = {(each["case"], each["check"]) for each in report["records"] if each["outcome"] != "not-run"}
    assert len([*(out / "parts").glob("*")]) >= cluster.said.count("judged by")
    assert kept <= judged if fault == "killed" else kept == judged
    assert {each["outcome"] for each in report["records"]} <= {"pass", "not-run"}
    assert ("not-run" in {each["outcome"] for each in report["records"]}) == (status != 0)


@pytest.mark.parametrize("fault", SIGNALS)
@pytest.mark.parametrize("cluster", [600], indirect=True)
def test_a_part_for_which_nobody_waits_ends(cluster: Cluster, fault: str) -> None:
    """It would build for ten minutes; its adapter ends with it."""
    cluster.process("part")
    part = cluster.until(lambda: (found := cluster.part()) and found.children(recursive=True) and found)
    assert isinstance(part, psutil.Process)
    begun = [part, *part.children(recursive=True)]
    cluster.client.send_signal(SIGNALS[fault])
    cluster.client.wait(timeout=60)
    cluster.until(lambda: not any(process.is_running() for process in begun))
    assert all(worker.poll() is None for worker in cluster.workers)


def test_a_worker_without_the_product_is_named(cluster: Cluster) -> None:
    """The others judge all."""
    hidden = cluster.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('encoder_conformance'): raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    file = str(cluster.folder / "scheduler.json")
    told = (DASK, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    environment = {**os.environ, "PYTHONPATH": str(hidden)}
    without = subprocess.Popen(told, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        cluster.until(
            lambda: "is left out: it has no encoder_conformance" in cluster.said or cluster.client.poll() == 0
        )
        assert cluster.client.wait(timeout=120) == 0
        assert "is left out: it has no encoder_conformance" in cluster.said
    finally:
        ended(without)
