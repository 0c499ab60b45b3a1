"""A condition that is measured when it is asked for, and not frozen: of an invariant, or of a narrow format.

16 runs of a small layer take some 40 ms. What is found is kept for the next check, dtype, implementation, and for
situations of the same numbers.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.encoder import evaluate, forward
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.oracle.kinks import condition_at_kinks
from encoder_conformance.platform.recent import Recent
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameter_count

RUNS = 16
_LARGE, _POSITIONS_AT_ONCE = 2_000_000, 4096
"""A layer of so many parameters has up to so many positions of all runs in one batch: to read the weights takes longer
than to use them."""
_KEPT = 64
_OF_NUMBERS = {"batch", "sequence", "items", "input", "positions", "parameter_exponents", "mask"}
_found = Recent[Mapping[str, Array]](_KEPT)


def measured_condition(case: Case, roundoff: float = SAMPLE_ROUNDOFF) -> Mapping[str, Array]:
    """κ of every stage, each in its own shape, from runs that disturb by `roundoff` (C-3, C-7); NaN where a stage is
    not finite."""
    layer = case.layer.model_dump_json()  # not its id: a declared deviation may have patched it
    numbers = case.situation.model_dump_json(include=_OF_NUMBERS), case.padding_id
    key = layer, case.numbers_from, *numbers, roundoff
    return _found.get(key, lambda: _measured(case, roundoff))


def _measured(case: Case, roundoff: float) -> Mapping[str, Array]:
    with np.errstate(all="ignore"):
        undisturbed = evaluate(case, Arithmetic(np.float64), None).stages
        return condition_at_kinks(case.layer, undisturbed, _conditions(case, undisturbed, roundoff), roundoff)


def _conditions(case: Case, undisturbed: Mapping[str, Array], roundoff: float) -> dict[str, Array]:
    batch, sequence, _ = case.x_shape
    few = case.situation.items is None and RUNS * batch * sequence <= _POSITIONS_AT_ONCE
    if few and parameter_count(case.layer) > _LARGE:
        return sampled_conditions(case.layer, given(case), undisturbed, RUNS, roundoff)
    runs = (evaluate(case, Rounded(roundoff, run), None).stages for run in range(RUNS))
    return conditions_of(runs, undisturbed, roundoff)


def sampled_conditions(
    layer: Layer, inputs: LayerInputs, undisturbed: Mapping[str, Array], runs: int, roundoff: float = SAMPLE_ROUNDOFF
) -> dict[str, Array]:
    """κ of every stage (C-1 to C-3, C-8), from so many runs that disturb by `roundoff`.

    `undisturbed`: the stages in float64, of these `inputs`, whose items are all evaluated.
    """
    return conditions_of(disturbed(layer, [inputs] * runs, roundoff), undisturbed, roundoff)


def disturbed(
    layer: Layer, samples: Sequence[LayerInputs], roundoff: float = SAMPLE_ROUNDOFF
) -> list[dict[str, Array]]:
    """Every stage of each of the samples, which differ in x alone. Each sample has noise of its own."""
    first = samples[0]
    assert first.items is None

    def for_each(values: Array) -> Array:
        """[B or 1, …] for the items of every sample."""
        return values if len(values) == 1 else np.concatenate([values] * len(samples))

    together = first.with_x(np.concatenate([each.x for each in samples]), for_each)
    stages = forward(layer, together, Rounded(roundoff, 0))
    return [
        dict(zip(stages, values, strict=True))
        for values in zip(*(np.split(value, len(samples)) for value in stages.values()), strict=True)
    ]


def conditions_of(
    samples: Iterable[Mapping[str, Array]], undisturbed: Mapping[str, Array], roundoff: float = SAMPLE_ROUNDOFF
) -> dict[str, Array]:
    """κ of every tensor, from samples of it that were disturbed by `roundoff`."""
    spread = Spread(undisturbed, roundoff)
    spread.add_each(samples)
    del samples  # every stage of every run: of many positions a gigabyte
    return spread.conditions()
