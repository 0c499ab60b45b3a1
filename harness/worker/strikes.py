"""When an implementation is given up: a worker that crashes or hangs at each check would cost its limit at each."""

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.worker.failure import Failure

IN_A_ROW = 3


class Strikes:
    """The checks in a row that have lost a worker of one implementation, whichever of its workers that was."""

    def __init__(self) -> None:
        self._count = 0
        self.given_up: Failure | None = None
        """Why no further check is asked, once that is so."""

    def answered(self) -> None:
        """A check has left its worker running."""
        self._count = 0

    def lost(self, failure: Failure) -> None:
        """A check has lost its worker. One that broke the protocol costs no more than its start, and does not count."""
        if failure.outcome not in (Outcome.CRASH, Outcome.TIMEOUT):
            return
        self._count += 1
        if self._count >= IN_A_ROW and self.given_up is None:
            text = f"given up: {IN_A_ROW} checks in a row have lost their worker; the last: {failure.message}"
            self.given_up = Failure(Outcome.NOT_RUN, text, kind="given-up")
