"""The catalogue, checked: every patch names what there is, and changes something somewhere."""

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from encoder_conformance.errors import InputError, nearest
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.oracle.deviant import changes, check_steps, patched_layer
from encoder_conformance.oracle.steps import NOISY
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load, load_deviations


@cache
def catalogue(specs: Path = SPECS) -> dict[str, Deviation]:
    """Every deviation by id."""
    specification = load(specs)
    deviations = load_deviations(specs)
    for name, deviation in deviations.items():
        where = f"{shown(specs / 'deviations' / name)}.yaml"
        check_steps(deviation, where)
        for layer in specification.layers.values():
            try:
                patched_layer(layer, deviation)
            except ValidationError as error:
                problem = error.errors()[0]["msg"]
                raise InputError(
                    f"makes of {layer.layer} no valid layer: {problem}", where=f"{where}: key patch.layer"
                ) from None
        if not any(changes(case, deviation) for case in specification.cases.values()):
            raise InputError(
                "changes nothing in any case",
                where=f"{where}: key patch",
                hint="a deviation differs from the standard in at least one layer and situation",
            )
    return deviations


def seen_in_evaluation() -> dict[str, Deviation]:
    """The deviations that outputs and stages may show: all but those of training alone (rule V-10)."""
    return {name: deviation for name, deviation in catalogue().items() if not deviation.patch.in_training}


def is_noisy(deviation: Deviation) -> bool:
    """Whether its values are not to be predicted, only how far they scatter: rounding to a narrow format, dropout."""
    return any(form in NOISY for form in deviation.patch.steps.values())


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
        hint = "an equation of `stages` has to be a specified one, to the letter (harness/spec/stage_equations.py)"
        raise InputError("changes nothing in any case", where=f"{where}: key patch", hint=hint)
