"""Which activation a function is, by its values."""

import numpy as np

from encoder_conformance.impls.onnx_file.tracing.expressions import Array, NotUnderstood
from encoder_conformance.oracle import special

EXACT = 2e-5
NEAR = 0.2
"""What is this close to an activation, and no closer, is taken for it done wrong, and said to be."""


def probe(shape: tuple[int, ...]) -> Array:
    """−8 … 8, evenly, whatever the shape; the values near 0, where activations differ, come with it."""
    size = int(np.prod(shape))
    values = np.linspace(-8, 8, size)
    values[::3] /= 4
    return values.reshape(shape)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + special.erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def activation_of(seen: Array, given: Array, name: str) -> tuple[str, float, float]:
    """The name; a factor, where the function is that many times the activation (an optimiser moves a half past a
    product); and by how much it is not that at most, 0 where it is."""
    with np.errstate(all="ignore"):
        due = {function: f(given) for function, f in ACTIVATIONS.items()}
        off = {function: float(np.abs(seen - values).max()) for function, values in due.items()}
        for function, values in due.items():
            factor = float(np.vdot(seen, values) / np.vdot(values, values))
            if np.abs(seen - factor * values).max() <= EXACT * max(1.0, abs(factor)):
                return function, 1.0 if abs(factor - 1) < EXACT else factor, 0.0
    function = min(off, key=lambda f: off[f] if np.isfinite(off[f]) else np.inf)
    if not off[function] <= NEAR:
        raise NotUnderstood(f"{name!r} is a function of each element, and none of {', '.join(ACTIVATIONS)}")
    return function, 1.0, off[function]
