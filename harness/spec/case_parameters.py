"""Parameters and inputs that are not drawn: those of an ONNX file, or of a module."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from encoder_conformance.portable import Floats


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
        for name, value in Widened(given).items():
            digest.update(f"{name} {value.shape} ".encode())
            digest.update(value.data)
        return cls(given, digest.hexdigest())

    @property
    def tensors(self) -> Mapping[str, Floats]:
        """In float64."""
        return Widened(self.as_given)


@dataclass(frozen=True, eq=False)
class Widened(Mapping[str, Floats]):
    """Tensors in float64, each converted when it is asked for: a file of 85 million numbers is not held twice more."""

    as_given: Mapping[str, npt.NDArray[np.floating]]

    def __getitem__(self, name: str) -> Floats:
        return self.as_given[name].astype(np.float64, copy=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_given)

    def __len__(self) -> int:
        return len(self.as_given)

    def __contains__(self, name: object) -> bool:
        return name in self.as_given
