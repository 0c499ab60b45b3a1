"""What an implementation declares: deviations that it is known for, and what cannot be judged beside them (rules V-5 to
V-7)."""

from collections.abc import Sequence
from pathlib import Path

from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.oracle.catalogue import catalogue, is_noisy
from encoder_conformance.oracle.deviant import changes, changes_unspecified_rows_alone, check_steps
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.paths import shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load
from encoder_conformance.spec.reason import Reason
from encoder_conformance.spec.situation import Check


def known_deviations(implementation: Implementation) -> dict[str, Deviation]:
    """Id → deviation: the catalogue's, and the implementation's own."""
    return {**catalogue(), **implementation.own_deviations}


def check_declared(implementation: Implementation, folder: Path) -> None:
    """Raises InputError for a declared deviation that neither the catalogue nor the implementation's folder has, and
    for one of the folder's that cannot be played."""
    for name, deviation in implementation.own_deviations.items():
        _check_own(deviation, f"{shown(folder / 'deviations' / name)}.yaml")
    if not implementation.deviations:
        return
    known = known_deviations(implementation)
    for entry in implementation.deviations:
        if entry.deviation not in known:
            raise InputError(
                f"declares the deviation {entry.deviation!r}, which neither specs/deviations/ nor the folder has",
                where=f"{shown(folder / 'impl.yaml')}: key deviations",
                hint=f"{nearest(entry.deviation, known)} (conform list deviations), or write "
                f"deviations/{entry.deviation}.yaml (conform explain --write-deviation)",
            )


def _check_own(deviation: Deviation, where: str) -> None:
    if deviation.deviation in catalogue():
        raise InputError(
            f"{deviation.deviation} is a deviation of the catalogue", where=where, hint="give the file another name"
        )
    check_steps(deviation, where)
    if not any(changes(case, deviation) for case in load().cases.values()):
        equations = "harness/encoder_conformance/oracle/forms"
        hint = f"an equation of `stages` has to be a specified one, to the letter ({equations})"
        raise InputError("changes nothing in any case", where=f"{where}: key patch", hint=hint)


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
