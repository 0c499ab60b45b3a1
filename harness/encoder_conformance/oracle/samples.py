"""A condition measured in one pass: the runs are items of one batch, and each weight is read once for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.oracle.arithmetic import Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.encoder import LayerInputs, forward
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer


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

    def for_each(values: Array | None) -> Array | None:
        """[B or 1, …] for the items of every sample."""
        if values is None or len(values) == 1:
            return values
        return np.concatenate([values] * len(samples))

    together = replace(
        first,
        x=np.concatenate([each.x for each in samples]),
        mask=for_each(first.mask),
        bias=for_each(first.bias),
        memory=for_each(first.memory),
    )
    stages = forward(layer, together, Rounded(roundoff, 0))
    return [
        dict(zip(stages, values, strict=True))
        for values in zip(*(np.split(value, len(samples)) for value in stages.values()), strict=True)
    ]


def conditions_of(
    samples: Sequence[Mapping[str, Array]], undisturbed: Mapping[str, Array], roundoff: float = SAMPLE_ROUNDOFF
) -> dict[str, Array]:
    """κ of every tensor, from samples of it that were disturbed by `roundoff`."""
    spread = Spread(undisturbed, roundoff)
    for each in samples:
        spread.add(each)
    return spread.conditions()
