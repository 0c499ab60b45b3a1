"""The catalogue, checked: every patch names what there is, and changes something somewhere."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from encoder_conformance.oracle.deviant import changes, check_steps, edited_layer
from encoder_conformance.oracle.forms import NOISY
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS, shown
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load, load_deviations


@cache
def catalogue(specs: Path = SPECS) -> dict[str, Deviation]:
    """Every deviation by id."""
    specification = load(specs)
    deviations = load_deviations(specs)
    for name, deviation in deviations.items():
        where = f"{shown(specs / 'deviations' / name)}.yaml"
        check_steps(deviation, where)
        problems = [*_problems(specification.layers.values(), deviation)]
        if len(problems) == len(specification.layers):
            raise InputError(f"makes of every layer none: {problems[0]}", where=f"{where}: key patch.layer")
        if not any(changes(case, deviation) for case in specification.cases.values()):
            hint = "a deviation differs from the standard in at least one layer and situation"
            raise InputError("changes nothing in any case", where=f"{where}: key patch", hint=hint)
    return deviations


def _problems(layers: Iterable[Layer], deviation: Deviation) -> Iterator[str]:
    """What contradicts the patch, of each layer of which it makes none."""
    for layer in layers:
        try:
            edited_layer(layer, deviation)
        except ValidationError as error:
            yield error.errors()[0]["msg"]


def seen_in_evaluation() -> dict[str, Deviation]:
    """The deviations that outputs and stages may show: all but those of training alone (rule V-10)."""
    return {name: deviation for name, deviation in catalogue().items() if not deviation.patch.in_training}


def is_noisy(deviation: Deviation) -> bool:
    """Whether its values are not to be predicted, only how far they scatter: rounding to a narrow format, dropout."""
    return any(form in NOISY for form in deviation.patch.steps.values())
