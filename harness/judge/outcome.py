"""What can become of one check, from best to worst."""

from enum import StrEnum


class Outcome(StrEnum):
    """The nine outcomes. An opt-out (`unsupported`) never counts as a pass; only `EXPECTED` ones let a run succeed."""

    PASS = "pass"  # conforms
    DEVIATES = "deviates"  # deviates as its manifest declares, verified against the patched specification
    UNSUPPORTED = "unsupported"  # its manifest says that it cannot, and why; not asked
    STALE = "stale"  # declares a deviation that is not seen
    FAIL = "fail"  # does not conform
    ERROR = "error"  # raised, or answered something that the protocol does not allow
    CRASH = "crash"  # the worker's process ended
    TIMEOUT = "timeout"  # no answer in time
    NOT_RUN = "not-run"  # the run ended before this check was asked


EXPECTED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.UNSUPPORTED})
SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}
