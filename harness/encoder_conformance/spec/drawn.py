"""Draws the parameters of a layer, whole or in parts (rules P-5 and P-6)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.spec import portable
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameters_of, without_prefix
from encoder_conformance.spec.portable import Floats, Pattern


@dataclass(frozen=True)
class DrawnParameter:
    """One parameter: the portable tensor `drawn_for`, float64, times 2**regime."""

    drawn_for: str
    shape: tuple[int, ...]
    pattern: Pattern
    exponent: int
    regime: int

    def whole(self) -> Floats:
        return np.ldexp(portable.tensor(self.drawn_for, self.shape, self.pattern, self.exponent), self.regime)

    def parts(self) -> Iterator[Floats]:
        """The elements in flat parts, in row-major order. The whole tensor is never in memory."""
        for part in portable.parts(self.drawn_for, self.shape, self.pattern, self.exponent):
            part *= 2.0**self.regime
            yield part


def drawn(layer: Layer, exponents: Mapping[str, int], seed: int = 0) -> dict[str, DrawnParameter]:
    """Name → every parameter of `layer`, times 2**exponents[name]; the default exponent is 0.

    The keys of `exponents` have no layer prefix. In a stack they apply to every layer.
    """
    parameters = {}
    for parameter in parameters_of(layer):
        shape, name = parameter.shape(layer), portable.drawn_for(parameter.name, seed)
        regime = exponents.get(without_prefix(parameter.name)[1], 0)
        if parameter.drawn == "gain":
            parameters[parameter.name] = DrawnParameter(name, shape, "gain", -7, regime)
        else:
            exponent = {"weight": portable.weight_exponent(shape[0]), "bias": -10, "embedding": -7}[parameter.drawn]
            parameters[parameter.name] = DrawnParameter(name, shape, "symmetric", exponent, regime)
    return parameters
