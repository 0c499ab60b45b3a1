"""Whether the goldens of some cases are frozen, or are computed first."""

from collections.abc import Sequence

from encoder_conformance.golden.computed import ComputedGoldens
from encoder_conformance.golden.frozen import FrozenGoldens
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.load import load

Goldens = FrozenGoldens | ComputedGoldens


def goldens_of(cases: Sequence[Case], jobs: int) -> Goldens:
    """The frozen goldens if every case is of a layer of the specification, drawn as it was; else the oracle's of all.

    `jobs`: processes that compute.
    """
    specification = load()
    if all(case.seed == 0 and specification.layers.get(case.layer.layer) == case.layer for case in cases):
        return FrozenGoldens(specification, constants())
    return ComputedGoldens(cases, constants(), jobs)
