"""How the parameters of a layer are drawn, each whole or a part at a time (rules P-5 and P-6)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance import portable
from encoder_conformance.portable import Floats, Pattern
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameters_of, without_prefix


@dataclass(frozen=True)
class Drawn:
    """One parameter: the portable tensor `drawn_for`, float64, times 2**moved."""

    drawn_for: str
    shape: tuple[int, ...]
    pattern: Pattern
    exponent: int
    moved: int

    def whole(self) -> Floats:
        return np.ldexp(portable.tensor(self.drawn_for, self.shape, self.pattern, self.exponent), self.moved)

    def parts(self) -> Iterator[Floats]:
        """Its elements, flat, in row-major order: of a large one, nothing whole is made."""
        for part in portable.parts(self.drawn_for, self.shape, self.pattern, self.exponent):
            part *= 2.0**self.moved
            yield part


def drawn(layer: Layer, exponents: Mapping[str, int], seed: int = 0) -> dict[str, Drawn]:
    """Every parameter of `layer`, each times 2**exponents[name], 0 where not named.

    `exponents` name a parameter without the prefix of its layer, and are those of every layer of a stack.
    """
    found = {}
    for parameter in parameters_of(layer):
        shape, name = parameter.shape(layer), portable.drawn_for(parameter.name, seed)
        moved = exponents.get(without_prefix(parameter.name)[1], 0)
        if parameter.drawn == "gain":
            found[parameter.name] = Drawn(name, shape, "gain", -7, moved)
        else:
            exponent = {"weight": portable.weight_exponent(shape[0]), "bias": -10, "embedding": -7}[parameter.drawn]
            found[parameter.name] = Drawn(name, shape, "symmetric", exponent, moved)
    return found
