"""The deviations that an implementation declares of a check, and the checks that they leave unjudged (V-5 to V-7)."""

from collections.abc import Sequence

from encoder_conformance.deviations.catalogue import is_noisy, known_deviations
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.oracle.deviant import changes, changes_unspecified_rows_alone
from encoder_conformance.reason import Reason
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.situation import Check


def active_deviations(implementation: Implementation, case: Case, dtype: str, check: Check) -> tuple[Deviation, ...]:
    """The deviations that the implementation declares of a check and that change its case."""
    entries = [entry for entry in implementation.deviations if entry.is_of(case, dtype, check)]
    if not entries:  # the catalogue is not read for nothing: it takes as long as the specification
        return ()
    known = known_deviations(implementation)
    found = [known[entry.deviation] for entry in entries if changes(case, known[entry.deviation])]
    if check == "dropout":  # it reads rates; what shows in evaluation is neither there nor missed (V-10)
        found = [deviation for deviation in found if deviation.patch.in_training]
    compared = any(not changes_unspecified_rows_alone(case, deviation) for deviation in found)
    return tuple(found) if compared else ()  # rows that are compared nowhere take no gradient out of judgement


def opt_out(case: Case, check: Check, deviations: Sequence[Deviation]) -> Reason | None:
    """The reason why these declared deviations leave nothing to judge a check by, or None."""
    if check not in ("gradients", "invariant"):
        return None
    if check == "gradients" and deviations:
        names = " and ".join(deviation.deviation for deviation in deviations)
        return Reason(kind="no-gradient", text=f"no gradient is specified for {names}")
    if noisy := [deviation.deviation for deviation in deviations if is_noisy(deviation)]:
        text = f"{' and '.join(noisy)} is predicted in size only, and {case.situation.invariant} asks for less"
        return Reason(kind="predicted-in-size", text=text)
    return None
