"""The change of one check between two runs."""

from enum import StrEnum
from typing import TypeGuard

from encoder_conformance.judging.records import Record
from encoder_conformance.spec.outcome import Outcome


class Change(StrEnum):
    """The changes, from what needs attention to what needs none."""

    NEWLY_OUT = "newly out of line"
    ANOTHER_DEVIATION = "another deviation"
    OPTED_OUT = "newly opted out"
    NOT_ASKED_NOW = "not asked any more"
    STILL_OUT = "still out of line"
    NOT_ASKED_BEFORE = "not asked before"
    FEWER_DEVIATIONS = "fewer deviations"
    NEWLY_IN = "newly in line"
    WITHIN_NOISE = "within noise"
    SAME_BITS = "same bits"
    SAME_OUTCOME = "same outcome"


WORSE = frozenset({Change.NEWLY_OUT, Change.ANOTHER_DEVIATION, Change.OPTED_OUT})
"""What gives `conform compare` the exit status 1."""
AS_BEFORE = frozenset({Change.WITHIN_NOISE, Change.SAME_BITS, Change.SAME_OUTCOME})
"""What needs no list of its checks."""


def change_of(old: Record | None, new: Record | None) -> Change | None:
    """The change of a check; None if neither run asked it.

    A check that deviates as declared is in line with its declaration: it got worse if it conformed before, or if it
    deviates in another way now. Answers that conform in both runs have the same bits if their digests are equal, and
    are within noise otherwise; checks of several requests have no digest, and so only the same outcome.
    """
    if not _asked(new):
        return _not_asked_now(old, new)
    if not _asked(old):
        return Change.NOT_ASKED_BEFORE
    was, is_now = old.outcome.is_in_line, new.outcome.is_in_line
    if not is_now:
        return Change.NEWLY_OUT if was else Change.STILL_OUT
    if not was:
        return Change.NEWLY_IN
    if deviations := _deviations(old, new):
        return deviations
    if old.digest is None or new.digest is None:
        return Change.SAME_OUTCOME
    return Change.SAME_BITS if old.digest == new.digest else Change.WITHIN_NOISE


def _asked(record: Record | None) -> TypeGuard[Record]:
    return record is not None and record.outcome.state != "not asked"


def _not_asked_now(old: Record | None, new: Record | None) -> Change | None:
    if not _asked(old):
        return None
    opted_out = new is not None and new.outcome is Outcome.UNSUPPORTED
    return Change.OPTED_OUT if opted_out and old.outcome.is_in_line else Change.NOT_ASKED_NOW


def _deviations(old: Record, new: Record) -> Change | None:
    """The change of the declared deviations that were observed; None if they are the same."""
    before, now = set(old.deviations), set(new.deviations)
    if now - before:
        return Change.ANOTHER_DEVIATION
    return Change.FEWER_DEVIATIONS if before - now else None
