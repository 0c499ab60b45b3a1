"""A Dask cluster, whose workers get parts, one at a time each, and again what a lost worker had."""

import contextlib
import importlib.util
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from encoder_conformance.commands.cluster.worker import Offer, PlanPart, Result, judge, offer
from encoder_conformance.implementation.manifest import Device
from encoder_conformance.platform.errors import InputError

_INSTALL = "pip install 'encoder-conformance[dask]'"
_SECONDS_TO_CONNECT, _SECONDS_BETWEEN_LOOKS = 10, 0.25
MOST_LOSSES = 3
"""Workers that a part may lose before it is given up: it may be what ends them."""


@contextlib.contextmanager
def connected(address: str, implementations: Sequence[str], device: Device) -> "Generator[DaskCluster]":
    """The cluster of a scheduler. Raises InputError if it cannot be reached, or has no worker."""
    if importlib.util.find_spec("distributed") is None:
        raise InputError("needs the package distributed", where="--scheduler", hint=_INSTALL)
    from distributed import Client  # a second of the command's start

    try:
        client = Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        problem = f"cannot be reached: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise InputError(problem, where=f"--scheduler {address}", hint="dask scheduler prints its address") from None
    with client:
        yield DaskCluster(client, address, implementations, device)


class DaskCluster:
    """Its workers with their offers, asked once each. One that joins later and contradicts the others gets no part."""

    def __init__(self, client: Any, address: str, implementations: Sequence[str], device: Device) -> None:
        self._client, self._address = client, address
        self._implementations, self._device = tuple(implementations), device
        self.offers: dict[str, Offer] = {}
        self.threads: dict[str, int] = {}

    def workers(self) -> Mapping[str, frozenset[str]]:
        """Address → the implementations that it can run, of all workers that are there now.

        Raises InputError if a worker contradicts another, by its harness or by the packages of an implementation.
        """
        try:
            # Not scheduler_info(): it may return what the client asks for itself meanwhile, which has no workers.
            self.threads = self._client.nthreads()
        except OSError:  # the scheduler is gone, and its workers with it
            self.threads = {}
        new = [address for address in self.threads if address not in self.offers]
        if new:
            asked = self._ask(new)
            try:
                _agree({**self.offers, **asked})
            except InputError:
                if not self.offers:
                    raise
                asked = {address: Offer(conform="", harness="") for address in asked}  # it came late, and gets nothing
            self.offers |= asked
        return {address: frozenset(self.offers[address].packages) for address in self.threads if address in self.offers}

    def _ask(self, addresses: list[str]) -> dict[str, Offer]:
        try:
            found = self._client.run(offer, self._implementations, self._device, workers=addresses, on_error="return")
        except OSError:  # all of them are gone already
            return {}
        offers = {}
        for address, each in found.items():
            if isinstance(each, ModuleNotFoundError):
                where = f"--scheduler {self._address}"
                raise InputError(f"worker {address} has no encoder_conformance", where=where, hint=_INSTALL)
            if isinstance(each, Offer):
                offers[address] = each
        return offers

    def start(self, part: PlanPart, worker: str) -> "DaskRunning":
        future = self._client.submit(
            judge, part, workers=[worker], allow_other_workers=False, pure=False, retries=0, key=None
        )
        return DaskRunning(future)

    def wait(self) -> None:
        """Return when something may have changed."""
        time.sleep(_SECONDS_BETWEEN_LOOKS)


class DaskRunning:
    """A part that a worker has begun."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self) -> Result | None:
        """The result; None while it runs."""
        if not self._future.done():
            return None
        if self._future.status == "finished":
            result: Result = self._future.result()
            return result
        return Result(problem=f"{self._future.status}: {self._future.exception()!r}")

    def drop(self) -> None:
        with contextlib.suppress(Exception):
            self._future.cancel(force=True)


def _agree(offers: Mapping[str, Offer]) -> None:
    """Raise InputError if two workers would judge differently: their reports could not be merged."""
    if not offers:
        return
    first, one = next(iter(offers.items()))
    for address, each in offers.items():
        if each.conform and (each.conform, each.harness) != (one.conform, one.harness):
            own, other = (f"{offer.conform} ({offer.harness})" for offer in (each, one))
            problem = f"{address} has conform {own}, and {first} {other}"
            raise InputError(problem, where="--scheduler", hint="install the same conform on every worker")
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    for address, each in offers.items():
        for name, packages in each.packages.items():
            where, theirs = known.setdefault(name, (address, packages))
            if packages != theirs:
                ours = ", ".join(sorted(set(packages) - set(theirs))) or "none of these"
                others = ", ".join(sorted(set(theirs) - set(packages))) or "none of these"
                problem = f"{name} differs: {address} has {ours}, and {where} has {others}"
                raise InputError(problem, where="--scheduler", hint="install the same packages on every worker")


@dataclass
class Dispatched:
    """`results`: part → its result. `given_up`: part → why it has none. `lost`: the workers that went away at work."""

    results: dict[PlanPart, Result] = field(default_factory=dict)
    given_up: dict[PlanPart, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def dispatch(cluster: DaskCluster, parts: Iterable[PlanPart], say: Callable[[str], None]) -> Dispatched:
    """Have all parts judged. `say` gets a line about each that ends, and about each worker that is lost."""
    waiting, running = deque(parts), dict[str, tuple[PlanPart, DaskRunning]]()
    losses: dict[PlanPart, int] = {}
    found = Dispatched()
    try:
        while waiting or running:
            there = cluster.workers()
            for worker in [worker for worker in running if worker not in there]:
                part, work = running.pop(worker)
                work.drop()
                found.lost.append(worker)
                losses[part] = losses.get(part, 0) + 1
                if losses[part] < MOST_LOSSES:
                    say(f"{worker} is lost; {part.name} is asked again elsewhere")
                    waiting.appendleft(part)
                else:
                    say(f"{worker} is lost; {part.name} has lost {MOST_LOSSES} workers and is given up")
                    found.given_up[part] = f"it lost {MOST_LOSSES} workers"
            for worker, (part, work) in list(running.items()):
                if (result := work.result()) is not None:
                    del running[worker]
                    _keep(found, part, result, worker, say)
            _start(cluster, there, waiting, running)
            if waiting and not running:
                _give_up(found, waiting, there, say)
            if running:
                cluster.wait()
    finally:
        for _, work in running.values():
            work.drop()
    return found


def _keep(found: Dispatched, part: PlanPart, result: Result, worker: str, say: Callable[[str], None]) -> None:
    if result.problem:
        say(f"{part.name} failed on {worker}: {result.problem}")
        found.given_up[part] = result.problem
    else:
        say(f"{part.name}: judged by {worker}")
        found.results[part] = result


def _start(
    cluster: DaskCluster,
    there: Mapping[str, frozenset[str]],
    waiting: deque[PlanPart],
    running: dict[str, tuple[PlanPart, DaskRunning]],
) -> None:
    """Start a part on every idle worker that can run one."""
    for worker, can_run in there.items():
        if worker in running:
            continue
        part = next((part for part in waiting if part.implementation in can_run), None)
        if part is not None:
            waiting.remove(part)
            running[worker] = part, cluster.start(part, worker)


def _give_up(
    found: Dispatched, waiting: deque[PlanPart], there: Mapping[str, frozenset[str]], say: Callable[[str], None]
) -> None:
    """No worker is at work, and none of those that are there can run what waits."""
    for part in waiting:
        reason = f"none of the {len(there)} workers that are left can run {part.implementation}"
        say(f"{part.name} is given up: {reason}")
        found.given_up[part] = reason
    waiting.clear()
