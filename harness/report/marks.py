"""A sign for each outcome: no two are the same, so that an outcome can be read without its colour."""

from encoder_conformance.judge.outcome import Outcome

MARKS = {
    Outcome.PASS: "✓",
    Outcome.DEVIATES: "≈",
    Outcome.UNSUPPORTED: "–",
    Outcome.STALE: "S",
    Outcome.INCONCLUSIVE: "?",
    Outcome.FAIL: "✗",
    Outcome.ERROR: "E",
    Outcome.CRASH: "C",
    Outcome.TIMEOUT: "T",
    Outcome.NOT_RUN: "·",
}
