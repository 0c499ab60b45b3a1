"""Parameters and inputs that are not drawn: those of an ONNX file, or of a module."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec import portable
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameters_of, without_prefix
from encoder_conformance.spec.portable import Floats, Pattern


@dataclass(frozen=True)
class CaseParameters:
    """Parameters that are not drawn, those of an ONNX file for instance.

    `as_given`: in the specification's names and shapes, in the format that they came in. `digest`: SHA-256 of names,
    shapes and values, those in float64.
    """

    as_given: Mapping[str, npt.NDArray[np.floating]] = field(compare=False)
    digest: str

    @classmethod
    def of(cls, tensors: Mapping[str, npt.NDArray[np.floating]]) -> "CaseParameters":
        """Compute the digest."""
        given = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
        digest = hashlib.sha256()
        for name, value in _widened(given).items():
            digest.update(f"{name} {value.shape} ".encode())
            digest.update(value.data)
        return cls(given, digest.hexdigest())

    @property
    def tensors(self) -> Mapping[str, Floats]:
        """The tensors in float64."""
        return _widened(self.as_given)


def _widened(given: Mapping[str, npt.NDArray[np.floating]]) -> Mapping[str, Floats]:
    """A file of 85 million numbers is not held twice more."""
    return Converted(given, lambda value: value.astype(np.float64, copy=False))


Given = TypeVar("Given")
Made = TypeVar("Made")


class Converted(Mapping[str, Made], Generic[Given, Made]):
    """Each value is made anew each time."""

    def __init__(self, given: Mapping[str, Given], convert: Callable[[Given], Made]) -> None:
        self._given, self._convert = given, convert

    def __getitem__(self, name: str) -> Made:
        return self._convert(self._given[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        return name in self._given  # and converts nothing


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
        pattern: Pattern = "gain" if parameter.drawn == "gain" else "symmetric"
        exponents_of = {"weight": portable.weight_exponent(shape[0]), "bias": -10, "embedding": -7, "gain": -7}
        parameters[parameter.name] = DrawnParameter(name, shape, pattern, exponents_of[parameter.drawn], regime)
    return parameters
