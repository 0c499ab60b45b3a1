"""Recognises an activation by its values."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from encoder_conformance.oracle.functions_of_one import function_of_one
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern
from encoder_conformance.spec.axes import Array, Elementwise

EXACT = 2e-5
NEAR = 0.2
"""A function this close to an activation, and no closer, is taken for an inexact one; a finding says so."""
NEARER = {"quick_gelu": 4e-3}
"""Activation → NEAR of it alone: QuickGELU is near GELU itself, and rounding its 1.702 takes it no further off."""


def probe(shape: tuple[int, ...]) -> Array:
    """−8 … 8, evenly, and −2 … 2, where activations differ most."""
    size = int(np.prod(shape))
    values = np.linspace(-8, 8, size)
    values[::3] /= 4
    return values.reshape(shape)


_ERF = np.frompyfunc(math.erf, 1, 1)
"""The C library's: a worker of each level would take longer to import SciPy than to look into a file."""


def _erf(x: Elementwise) -> Elementwise:
    return np.asarray(_ERF(x), np.float64)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


class FoundActivation(NamedTuple):
    """The name, the factor, and the largest error, which is 0 where the function is exact. `formula`: what it is where
    it is not; "" where that is not known."""

    function: str
    factor: float
    error: float = 0.0
    formula: str = ""


def activation_of(observed: Elementwise, inputs: Elementwise, name: str) -> FoundActivation:
    """The activation that is nearest. Raises UnsupportedPattern where none is near.

    The factor is not 1 where an optimiser moved a factor, such as GELU's half, past the next product. One that is taken
    for an inexact activation has a power of 2: another would hide what is wrong with it.
    """
    with np.errstate(all="ignore"):
        expected = {function: f(inputs) for function, f in ACTIVATIONS.items()}
        factors = {function: float(np.vdot(observed, due) / np.vdot(due, due)) for function, due in expected.items()}
        for function, factor in factors.items():
            if np.abs(observed - factor * expected[function]).max() <= EXACT * max(1.0, abs(factor)):
                return FoundActivation(function, 1.0 if abs(factor - 1) < EXACT else factor)
        powers = {f: float(2.0 ** np.round(np.log2(factors[f]))) if factors[f] > 0 else 1.0 for f in ACTIVATIONS}
        errors = {f: float(np.abs(observed / power - expected[f]).max()) for f, power in powers.items()}
    found = function_of_one(inputs, observed)
    if found is not None and not found.fitted:
        raise UnsupportedPattern(f"{found.text} at {name!r}", "activation")
    near = [f for f, error in errors.items() if error <= NEARER.get(f, NEAR)]
    if not near:
        is_it = f"is {found.text} of each element x" if found else "is a function of each element"
        raise UnsupportedPattern(f"{name!r} {is_it}, and none of {', '.join(ACTIVATIONS)}")
    function = min(near, key=errors.__getitem__)
    return FoundActivation(function, powers[function], errors[function], found.text if found else "")
