"""A pool of fresh interpreters that ends cleanly on Ctrl-C."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Pool(ProcessPoolExecutor):
    """A process pool whose workers ignore Ctrl-C: only the parent receives it, and terminates them.

    A terminal sends Ctrl-C to every process of the group. Each worker would print a traceback and go on with its queue,
    in which a case can take a minute.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, mp_context=multiprocessing.get_context("spawn"))
        self._others = multiprocessing.active_children()

    def submit(
        self, fn: Callable[_Parameters, _Result], /, *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> Future[_Result]:
        """As in the base class, with SIGINT blocked: a process that this call starts inherits the mask."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in self._others:
                    process.terminate()
        return super().__exit__(kind, error, trace)
