"""A Dask cluster as `dispatch` sees it: which workers are there, what they can run, and a part on one of them.

Nothing here waits without bound: a scheduler or a worker that is stopped, or cut off, answers nothing, and closes
nothing.
"""

import contextlib
import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from encoder_conformance.commands.cluster.worker import Offer, PlanPart, Result, judge, offer
from encoder_conformance.implementation.manifest import Device
from encoder_conformance.platform.errors import InputError, MachineError

Answer = TypeVar("Answer")
_INSTALL = "pip install 'encoder-conformance[dask]'"
_SECONDS_TO_CONNECT, _SECONDS_BETWEEN_LOOKS = 10, 0.25
SECONDS_UNTIL_SAID, SECONDS_OF_SILENCE = 10.0, 60.0
"""A scheduler's silence that is worth a line, and the silence of a scheduler or worker that counts as its end. A worker
tells the scheduler every half a second that it lives."""
SECONDS_FOR_A_WORKER = 30.0
"""How long a cluster that has lost its last worker may take to have one again: a nanny starts another in two."""


class Silent(Exception):
    """No answer came in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer in {seconds:g} s")


def within(seconds: float, call: Callable[[], Answer], said: Callable[[], None] = lambda: None) -> Answer:
    """What `call` gives or raises. Raises Silent after `seconds`; `said` is called when it takes long."""
    ended, found = threading.Event(), list[Answer]()
    failed = list[BaseException]()

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # it is raised where the result is waited for
            failed.append(error)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    first = min(seconds, SECONDS_UNTIL_SAID)
    if not ended.wait(first):
        said()
        if not ended.wait(seconds - first):
            raise Silent(seconds)
    if failed:
        raise failed[0]
    return found[0]


@contextlib.contextmanager
def connected(
    address: str, implementations: Sequence[str], device: Device, say: Callable[[str], None]
) -> "Generator[DaskCluster]":
    """The cluster of a scheduler. Raises InputError if it cannot be reached. `say`: of what goes wrong later."""
    if importlib.util.find_spec("distributed") is None:
        raise InputError("needs the package distributed", where="--scheduler", hint=_INSTALL)
    from distributed import Client  # a second of the command's start

    for name in (*logging.root.manager.loggerDict, "distributed", "asyncio"):  # each has a level of its own
        if name.partition(".")[0] in ("distributed", "asyncio"):  # tracebacks of what is said here in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        # Its own limit is for how long it tries to have a lost connection back, too, and then ends itself.
        client = within(_SECONDS_TO_CONNECT, lambda: Client(address, timeout=SECONDS_OF_SILENCE, set_as_default=False))
    except (OSError, ValueError, TypeError, Silent) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        problem = f"cannot be reached: {reason}"
        raise InputError(problem, where=f"--scheduler {address}", hint="dask scheduler prints its address") from None
    try:
        yield DaskCluster(client, address, implementations, device, say)
    finally:
        with contextlib.suppress(Silent, OSError):
            within(_SECONDS_TO_CONNECT, client.close)


class DaskCluster:
    """Its workers with their offers, asked once each. One that joins later and contradicts the others gets no part."""

    def __init__(
        self, client: Any, address: str, implementations: Sequence[str], device: Device, say: Callable[[str], None]
    ) -> None:
        self._client, self._address, self._say = client, address, say
        self._implementations, self._device = tuple(implementations), device
        self.offers: dict[str, Offer] = {}
        self.threads: dict[str, int] = {}
        self._quiet: set[str] = set()

    def workers(self) -> Mapping[str, frozenset[str]]:
        """Address → the implementations that it can run, of all workers that are there now.

        Once there were some, it waits a while for one where none is left. Raises InputError if a worker contradicts
        another, by its harness or by the packages of an implementation; MachineError if the scheduler is gone.
        """
        until = time.monotonic() + (SECONDS_FOR_A_WORKER if self.offers else 0)
        while not (threads := self._there()) and time.monotonic() < until:
            self.wait()
        self.threads = threads
        if new := [address for address in threads if address not in self.offers]:
            asked = self._ask(new)
            try:
                _agree({**self.offers, **asked})
            except InputError:
                if not self.offers:
                    raise
                asked = {address: Offer(conform="", harness="") for address in asked}  # it came late, and gets nothing
            self.offers |= asked
        return {address: frozenset(self.offers[address].packages) for address in threads}

    def _there(self) -> dict[str, int]:
        """Worker → its threads, of those that the scheduler has heard of lately."""

        def heard(dask_scheduler: Any) -> dict[str, tuple[int, float]]:
            from time import time

            now = time()
            return {address: (each.nthreads, now - each.last_seen) for address, each in dask_scheduler.workers.items()}

        def silent() -> None:
            what = "does not answer" if self._client.status == "running" else "is gone"
            self._say(f"the scheduler {self._address} {what}; it has {SECONDS_OF_SILENCE:g} s")

        try:
            found = within(SECONDS_OF_SILENCE, lambda: self._of_scheduler(heard), silent)
        except Silent:
            what = "not answered for" if self._client.status == "running" else "been gone for"
            raise MachineError(f"the scheduler {self._address} has {what} {SECONDS_OF_SILENCE:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: of a client that was closed
            raise MachineError(f"the scheduler {self._address} is gone: {error}") from None
        self._say_of_quiet({address for address, (_, ago) in found.items() if ago >= SECONDS_UNTIL_SAID})
        return {address: threads for address, (threads, ago) in found.items() if ago < SECONDS_OF_SILENCE}

    def _say_of_quiet(self, quiet: set[str]) -> None:
        """A line about each worker that the scheduler has not heard of for a while, once each time."""
        for address in sorted(quiet - self._quiet):
            self._say(f"{address} has not been heard of for {SECONDS_UNTIL_SAID:g} s; it has {SECONDS_OF_SILENCE:g} s")
        self._quiet = quiet

    def _of_scheduler(self, call: Callable[[Any], Answer]) -> Answer:
        """What the scheduler says. A connection that was reset may be there again in a moment: Dask makes another."""
        until = time.monotonic() + SECONDS_OF_SILENCE
        while True:
            try:
                answer: Answer = self._client.run_on_scheduler(call)
            except (OSError, AttributeError) as error:
                has_given_up = self._client.scheduler is None  # Dask has tried in vain, and has ended its client
                if isinstance(error, AttributeError) and not has_given_up:
                    raise
                if has_given_up or time.monotonic() > until:
                    raise Silent(SECONDS_OF_SILENCE) from None
                self.wait()
            else:
                return answer

    def _ask(self, addresses: list[str]) -> dict[str, Offer]:
        """The offers of workers; of one that makes none, an empty one, and a line that says why."""
        told = {"workers": addresses, "on_error": "return"}

        def silent() -> None:
            who = ", ".join(addresses)
            self._say(f"waiting for {who} to say what can be run there; {SECONDS_OF_SILENCE:g} s at most")

        try:
            found = within(
                SECONDS_OF_SILENCE, lambda: self._client.run(offer, self._implementations, self._device, **told), silent
            )
        except Silent:
            if len(addresses) > 1:  # by one of them
                return {address: each for one in addresses for address, each in self._ask([one]).items()}
            found = dict.fromkeys(addresses, f"it has not answered for {SECONDS_OF_SILENCE:g} s")
        except OSError:  # all of them are gone already
            found = dict.fromkeys(addresses, "it is gone")
        except ModuleNotFoundError as error:  # of one of them
            if len(addresses) > 1:
                return {address: each for one in addresses for address, each in self._ask([one]).items()}
            found = dict.fromkeys(addresses, error)
        offers = {}
        for address in addresses:
            each = found.get(address, "it is gone")
            offers[address] = each if isinstance(each, Offer) else Offer(conform="", harness="")
            if not isinstance(each, Offer):
                self._say(f"{address} is left out: {_why(each)}")
        return offers

    def start(self, part: PlanPart, worker: str) -> "DaskRunning":
        future = self._client.submit(
            judge_while_wanted, part, workers=[worker], allow_other_workers=False, pure=False, retries=0, key=None
        )
        return DaskRunning(
            future,
            lambda: self._say(f"waiting for {worker} to hand over {part.name}; {SECONDS_OF_SILENCE:g} s at most"),
        )

    def wait(self) -> None:
        """Return when something may have changed."""
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def judge_while_wanted(part: PlanPart) -> Result:
    """On a worker: judge a part until Dask wants it no more. A client that is gone, however it went, wants nothing, and
    the scheduler tells the worker so; but Dask ends no thread that has begun."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return judge(part, is_wanted)


def _why(problem: object) -> str:
    """Why a worker makes no offer."""
    text = str(problem)
    if "encoder_conformance" in text and ("No module named" in text or isinstance(problem, ModuleNotFoundError)):
        return f"it has no encoder_conformance ({_INSTALL})"
    return text if isinstance(problem, str) else f"{type(problem).__name__}: {text}"


class DaskRunning:
    """A part that a worker has begun. `waiting` is called when its report takes long to arrive."""

    def __init__(self, future: Any, waiting: Callable[[], None]) -> None:
        self._future, self._waiting = future, waiting

    def result(self) -> Result | None:
        """The result; None while it runs."""
        if not self._future.done():
            return None
        if self._future.status == "finished":
            try:
                result: Result = within(SECONDS_OF_SILENCE, self._future.result, self._waiting)
            except (Silent, OSError):
                return Result(problem="it does not hand over its report", lost=True)
            return result
        if self._future.status in ("lost", "cancelled"):
            return Result(problem="it was lost with its scheduler", lost=True)
        return Result(problem=f"{self._future.status}: {within(SECONDS_OF_SILENCE, self._future.exception)!r}")

    def drop(self) -> None:
        with contextlib.suppress(Exception):
            within(_SECONDS_TO_CONNECT, lambda: self._future.cancel(force=True))


def _agree(offers: Mapping[str, Offer]) -> None:
    """Raise InputError if two workers would judge differently: their reports could not be merged."""
    known = {address: each for address, each in offers.items() if each.conform}
    if not known:
        return
    first, one = next(iter(known.items()))
    for address, each in known.items():
        if (each.conform, each.harness) != (one.conform, one.harness):
            own, other = (f"{offer.conform} ({offer.harness})" for offer in (each, one))
            problem = f"{address} has conform {own}, and {first} {other}"
            raise InputError(problem, where="--scheduler", hint="install the same conform on every worker")
    packages: dict[str, tuple[str, tuple[str, ...]]] = {}
    for address, each in known.items():
        for name, own_packages in each.packages.items():
            where, theirs = packages.setdefault(name, (address, own_packages))
            if own_packages != theirs:
                ours = ", ".join(sorted(set(own_packages) - set(theirs))) or "none of these"
                others = ", ".join(sorted(set(theirs) - set(own_packages))) or "none of these"
                problem = f"{name} differs: {address} has {ours}, and {where} has {others}"
                raise InputError(problem, where="--scheduler", hint="install the same packages on every worker")
