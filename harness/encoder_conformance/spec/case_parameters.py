"""Parameters and inputs that are not drawn: those of an ONNX file, or of a module."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from encoder_conformance.platform.converted import Converted
from encoder_conformance.spec.portable import Floats


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
