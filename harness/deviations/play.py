"""What the judge would say of an implementation that has a deviation: the oracle plays it."""

from collections.abc import Sequence

import numpy as np

from harness.golden.expected import Expected
from harness.judge.verdict import Verdict, judge
from harness.oracle.arithmetic import Arithmetic, Array, Rounded
from harness.oracle.condition import SAMPLE_ROUNDOFF
from harness.oracle.deviant import deviant
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.deviation import Deviation
from harness.spec.dtypes import Format
from harness.spec.situation import Check
from harness.spec.stages import stages


def played(case: Case, deviations: Sequence[Deviation], draw: int = 0) -> dict[str, Array]:
    """Every stage of the case as the wrong implementation computes it, in float64; `draw` settles what is random."""
    return deviant(case, deviations).stages(Arithmetic(np.float64, draw))


_NOISE_RUNS = 24
_with_noise: dict[tuple[object, ...], tuple[dict[str, Array], dict[str, Array]]] = {}


def played_with_noise(case: Case, deviations: Sequence[Deviation]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Every stage of the wrong layer and its condition, made as `harness.oracle.condition` makes a right one's."""
    key = (case.id, case.seed, *(deviation.deviation for deviation in deviations))
    if key not in _with_noise:
        wrong = deviant(case, deviations)
        golden = wrong.stages(Arithmetic(np.float64))
        squares = {name: np.zeros(value.shape) for name, value in golden.items()}
        with np.errstate(all="ignore"):
            for run in range(_NOISE_RUNS):
                for name, value in wrong.stages(Rounded(SAMPLE_ROUNDOFF, run)).items():
                    squares[name] += ((value - golden[name]) / SAMPLE_ROUNDOFF) ** 2
        _with_noise[key] = golden, {name: np.sqrt(total / _NOISE_RUNS) for name, total in squares.items()}
    return _with_noise[key]


def verdict(
    check: Check, case: Case, wrong: dict[str, Array], expected: Expected, dtype: Format, constants: Constants
) -> Verdict:
    """Judge the played stages as if an adapter had answered with them."""
    names = ("output",) if check == "output" else stages(case.layer)
    with np.errstate(over="ignore", invalid="ignore"):
        answer = {name: wrong[name].astype(dtype.numpy) for name in names}
    return judge(check, names, answer, expected, dtype, constants)
