"""Pools that end with their parent, however that ends: of fresh interpreters, and of threads.

Python raises an interrupt in the main thread, perhaps in the middle of a lock's method: the lock then stays taken, and
a thread that needs it, to begin or to hand its result over, waits for ever. So interrupts are deferred where a thread
is started, and results are waited for where an interrupt does no harm.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

from encoder_conformance.platform.errors import MachineError
from encoder_conformance.platform.interrupts import INTERRUPTS, deferred_interrupts

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Pool(ProcessPoolExecutor):
    """A process pool whose workers leave Ctrl-C and its like to the parent, which then kills them.

    Otherwise each worker would print a traceback and go on with its queue, in which a case can take a minute. A worker
    whose parent is gone ends by itself.
    """

    def __init__(self, jobs: int) -> None:
        try:
            with _blocked():  # multiprocessing's own process, which keeps account of semaphores, inherits it
                super().__init__(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)
        except (OSError, ImportError) as error:
            raise MachineError(f"processes cannot share memory here (/dev/shm): {error}") from None
        self._others = multiprocessing.active_children()

    def submit(
        self, fn: Callable[_Parameters, _Result], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> Future[_Result]:
        """Submit as the base class does; a process that this call starts has the signals blocked."""
        with _blocked():
            return super().submit(fn, *args, **kwargs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            for process in multiprocessing.active_children():
                if process not in self._others:
                    process.kill()
        return super().__exit__(kind, error, trace)


class ThreadPool(ThreadPoolExecutor):
    """A pool of threads each of which begins, whenever an interrupt arrives."""

    def submit(
        self, fn: Callable[_Parameters, _Result], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> Future[_Result]:
        """Submit as the base class does; an interrupt is handled afterwards."""
        with deferred_interrupts():
            return super().submit(fn, *args, **kwargs)


def completed(futures: Collection[Future[_Result]]) -> Iterator[Future[_Result]]:
    """Yield each of them when it is done. Threads and processes may hand their results over if this is interrupted."""
    done = queue.SimpleQueue[Future[_Result]]()
    with deferred_interrupts():
        for future in futures:
            future.add_done_callback(done.put)
    for _ in range(len(futures)):
        yield done.get()


def in_order(futures: Sequence[Future[_Result]]) -> Iterator[_Result]:
    """Yield the results, in the order of the futures. If this is interrupted, none is cancelled, as `map` would: what
    waits fails when the pool's processes are killed, and cancelled as well it would fail twice."""
    ended = completed(futures)
    for future in futures:
        while not future.done():
            next(ended)
        yield future.result()


@contextlib.contextmanager
def _blocked() -> Generator[None]:
    """Processes that start in the block have the signals blocked. One that arrives is handled after it.

    The mask alone would not defer it: another thread may take it, and Python then interrupts the main one.
    """
    with deferred_interrupts():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """In a worker: end it as soon as its parent is gone, be it in the middle of a case."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
