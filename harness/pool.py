"""Fresh interpreters that compute side by side, and that end when what asked them is interrupted."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class Pool(ProcessPoolExecutor):
    """A terminal says Ctrl-C to every process of a group. Here only the one that asks hears it, and ends the others.

    They would each print a traceback, and go on with what waits for them; a case can take a minute.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, mp_context=multiprocessing.get_context("spawn"))
        self._others = multiprocessing.active_children()

    def submit(self, fn: Callable[_Given, _Found], /, *args: _Given.args, **kwargs: _Given.kwargs) -> Future[_Found]:
        """This is where a process is started, and it inherits which signals are blocked."""
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
