"""Which cases tell which two deviations apart: what a diagnosis needs to name one and not the other."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from encoder_conformance.core.sensitivity import MARGIN
from encoder_conformance.deviations.catalogue import catalogue, is_noisy
from encoder_conformance.deviations.kill import PLAYED
from encoder_conformance.deviations.simulate import simulate
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.judge.expected import Expected
from encoder_conformance.oracle.arithmetic import Array
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.pool import Pool
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages

Apart = dict[tuple[str, Check], npt.NDArray[np.bool_]]
"""(format, check) → [n, n] over the catalogue: whether two deviations differ by the margin in a tensor of it."""


def told_apart(cases: Sequence[Case], dtypes: tuple[str, ...], jobs: int) -> Iterator[tuple[str, Apart]]:
    """Case id → which deviations it tells apart, for cases that have goldens of their own."""
    heavy_first = sorted(cases, key=lambda case: -case.layer.d_model * case.situation.batch * case.situation.sequence)
    with Pool(jobs) as pool:
        yield from pool.map(_told_apart, [case.id for case in heavy_first], [dtypes] * len(heavy_first))


def _told_apart(case_id: str, dtypes: tuple[str, ...]) -> tuple[str, Apart]:
    case = load().cases[case_id]
    expected = read_golden(case, read_golden_manifest(), constants())
    rows = _rows(case, expected)
    found: Apart = {}
    for check in (check for check in PLAYED if check in case.situation.checks):
        names = ("output",) if check == "output" else stages(case.layer)
        for dtype in dtypes:
            found[dtype, check] = _differ(rows, names, expected, FORMATS[dtype])
    return case_id, found


def _rows(case: Case, expected: Expected) -> dict[str, Array]:
    """Stage → [n, positions]: its golden as each deviation of the catalogue makes it, NaN in another shape."""
    rows = {
        name: np.repeat(tensor.golden[None], len(catalogue()), axis=0)
        for name, tensor in expected.tensors.items()
        if not name.startswith("gradient.")
    }
    for at, deviation in enumerate(catalogue().values()):
        if changes(case, deviation):
            wrong = simulate(case, [deviation])
            for name, row in rows.items():
                tensor = expected.tensors[name]
                fits = wrong[name].shape == tensor.shape
                row[at] = wrong[name].reshape(-1)[tensor.positions] if fits else np.nan
    return rows


def _differ(rows: dict[str, Array], names: Sequence[str], expected: Expected, dtype: Format) -> npt.NDArray[np.bool_]:
    """[n, n]: whether the rms of the difference of any tensor is at least the margin, in σ of the right layer."""
    count = len(catalogue())
    found = np.zeros((count, count), dtype=np.bool_)
    for name in names:
        tensor = expected.tensors[name]
        if not tensor.positions.size:
            continue
        sigma = np.maximum(dtype.roundoff * np.nan_to_num(tensor.condition), dtype.smallest_normal)
        with np.errstate(all="ignore"):
            scaled = rows[name] / sigma
            finite = np.isfinite(scaled)
            for at in range(count):
                apart = np.where(finite & finite[at], scaled - scaled[at], 0.0)
                far = np.sqrt(np.mean(apart * apart, axis=1)) >= MARGIN
                found[at] |= far | (finite != finite[at]).any(axis=1)
    return found


def predicted() -> npt.NDArray[np.bool_]:
    """[n]: deviations whose values can be predicted; of two that only spread, no case can say which one it saw."""
    return np.array([not is_noisy(deviation) for deviation in catalogue().values()])
