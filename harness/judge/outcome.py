"""The outcomes of a check, from best to worst."""

from enum import StrEnum


class Outcome(StrEnum):
    """The ten outcomes. An opt-out (`unsupported`) never counts as a pass. A run succeeds if all are `EXPECTED`."""

    PASS = "pass"  # conforms
    DEVIATES = "deviates"  # deviates as its manifest declares, verified against the patched specification
    UNSUPPORTED = "unsupported"  # the manifest excludes the check, with a reason; not run
    STALE = "stale"  # the declared deviation is not observed
    INCONCLUSIVE = "inconclusive"  # holds for any input, as the output does not depend on it
    FAIL = "fail"  # does not conform
    ERROR = "error"  # the adapter raised an exception or broke the protocol
    CRASH = "crash"  # the worker's process ended
    TIMEOUT = "timeout"  # no answer within the time limit
    NOT_RUN = "not-run"  # the run ended before this check


EXPECTED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.UNSUPPORTED})
SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}
