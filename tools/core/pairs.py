"""Measures which cases distinguish which pairs of deviations, so that a diagnosis can name one and not the other."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue, is_noisy
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.platform.pool import Pool, in_order
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages
from tools.core.sensitivity import MARGIN
from tools.kill import PLAYED

Distinguished = dict[tuple[str, Check], npt.NDArray[np.bool_]]
"""(format, check) → [n, n] over the catalogue: whether two deviations differ by the margin in a tensor of it."""


def distinguished_pairs(
    cases: Sequence[Case], dtypes: tuple[str, ...], jobs: int
) -> Iterator[tuple[str, Distinguished]]:
    """Yields case id and the pairs that the case distinguishes, for cases that have goldens of their own."""
    largest_first = sorted(cases, key=lambda case: -case.layer.d_model * case.situation.batch * case.situation.sequence)
    with Pool(jobs) as pool:
        yield from in_order([pool.submit(_distinguish_in_case, case.id, dtypes) for case in largest_first])


def _distinguish_in_case(case_id: str, dtypes: tuple[str, ...]) -> tuple[str, Distinguished]:
    case = load().cases[case_id]
    expected = read_golden(case, read_golden_manifest(), constants())
    stages_by_name = _simulate_stages(case, expected)
    distinguished: Distinguished = {}
    for check in (check for check in PLAYED if check in case.situation.checks):
        names = ("output",) if check == "output" else stages(case.layer)
        for dtype in dtypes:
            distinguished[dtype, check] = _find_differences(stages_by_name, names, expected, FORMATS[dtype])
    return case_id, distinguished


def _simulate_stages(case: Case, expected: Expected) -> dict[str, Array]:
    """Stage → [n, positions], its values under each deviation of the catalogue; NaN if the shape differs."""
    rows = {
        name: np.repeat(tensor.golden[None], len(catalogue()), axis=0)
        for name, tensor in expected.tensors.items()
        if not name.startswith("gradient.")
    }
    for index, deviation in enumerate(catalogue().values()):
        if changes(case, deviation):
            simulated = simulate(case, [deviation])
            for name, values in rows.items():
                tensor = expected.tensors[name]
                fits = simulated[name].shape == tensor.shape
                values[index] = simulated[name].reshape(-1)[tensor.positions] if fits else np.nan
    return rows


def _find_differences(
    rows: dict[str, Array], names: Sequence[str], expected: Expected, dtype: Format
) -> npt.NDArray[np.bool_]:
    """[n, n], true if any tensor's rms difference is at least the margin, in σ of the conforming layer."""
    count = len(catalogue())
    differ = np.zeros((count, count), dtype=np.bool_)
    for name in names:
        tensor = expected.tensors[name]
        if not tensor.positions.size:
            continue
        sigma = dtype.sigma(np.nan_to_num(tensor.condition))
        with np.errstate(all="ignore"):
            scaled = rows[name] / sigma
            finite = np.isfinite(scaled)
            for index in range(count):
                difference = np.where(finite & finite[index], scaled - scaled[index], 0.0)
                exceeds = np.sqrt(np.mean(difference * difference, axis=1)) >= MARGIN
                differ[index] |= exceeds | (finite != finite[index]).any(axis=1)
    return differ


def predictable_deviations() -> npt.NDArray[np.bool_]:
    """[n], true for deviations with predictable values. No case distinguishes two that are predicted in size only."""
    return np.array([not is_noisy(deviation) for deviation in catalogue().values()])


def possible_deviations(cases: Sequence[Case]) -> npt.NDArray[np.bool_]:
    """[n], true for deviations that one of the cases may have, and for those of training alone, which none shows."""
    return np.array([d.patch.in_training or any(changes(case, d) for case in cases) for d in catalogue().values()])
