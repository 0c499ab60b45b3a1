"""Says a fitted number that differs from case to case by a size: of the input, or of the layer."""

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from encoder_conformance.diagnosis.identify.fitted_numbers import SURE, Limits, Number, fitted, written
from encoder_conformance.diagnosis.identify.samples import StepSample, cost


def _lacking(block: int, n: float) -> float:
    return -n % block


_SIZES = ("sequence_length", "batch_size", "d_model", "head_dim", "num_heads", "d_ff")
_FORMS: dict[str, Callable[[float], float]] = {
    "{0}": lambda n: n,
    "1 / {0}": lambda n: 1 / n,
    "sqrt({0})": math.sqrt,
    "1 / sqrt({0})": lambda n: 1 / math.sqrt(n),
    "log({0})": math.log,
    "log(1 + {0})": lambda n: math.log(1 + n),
    "1 / log({0})": lambda n: 1 / math.log(n),
    "({0} - 1)": lambda n: n - 1,
    "1 / ({0} - 1)": lambda n: 1 / (n - 1),
    "({0} + 1)": lambda n: n + 1,
    "1 / ({0} + 1)": lambda n: 1 / (n + 1),
    "{0} ** 2": lambda n: n * n,
    **{f"(-{{0}} % {block})": partial(_lacking, block) for block in (8, 16, 32, 64, 128)},
}
"""Functions of a size that people write; the last ones are what a size lacks to whole blocks."""
_OF_MORE_THAN_ONE = ("log({0})", "1 / log({0})", "({0} - 1)", "1 / ({0} - 1)")


IN_LINE = 4.0
"""The cost of a case, mean log(1 + error²) in σ, that a wrong step's own noise may leave: that of some 7 σ."""


def sized(samples: Sequence[StepSample], tree: ast.expr, limits: Limits) -> Iterator[str]:
    """Yield what `c` is in every case: a number times a function of a size that differs between the cases.

    Nothing where no number puts each case in line by itself. `limits` are those of the first case.
    """
    numbers = list[Number]()
    for sample in samples:
        number = fitted([sample], tree, Limits(limits.starts) if numbers else limits)
        if number is None or cost([sample], tree, number.value) >= IN_LINE:
            return
        numbers.append(number)
    for size in _SIZES:
        values = [float(sample.operands[size]) for sample in samples]
        if len(set(values)) > 1:
            yield from _in_terms_of(size, values, numbers)


def _in_terms_of(size: str, values: Sequence[float], numbers: Sequence[Number]) -> Iterator[str]:
    for form, of in _FORMS.items():
        if min(values) < 2 and form in _OF_MORE_THAN_ONE:
            continue
        at = np.array([of(value) for value in values])
        if not at.all():
            continue
        factors = np.array([number.value for number in numbers]) / at
        unsure = np.array([number.uncertainty for number in numbers]) / np.abs(at)
        factor = float(np.average(factors, weights=unsure**-2.0))
        if np.all(np.abs(factors - factor) <= np.maximum(SURE * unsure, 1e-9 * abs(factor))):
            number = next(written(Number(factor, float(unsure.min()))))
            text = form.format(size)
            yield text if number == "1" else f"{number} * {text}"
