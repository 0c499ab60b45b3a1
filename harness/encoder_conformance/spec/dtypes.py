"""The floating-point formats in which cases are run (clause D-1)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from encoder_conformance.spec.axes import Elementwise
from encoder_conformance.spec.level import DTYPES
from encoder_conformance.spec.level import DtypeName as DtypeName


@dataclass(frozen=True)
class Format:
    """`roundoff` is u, half the distance from 1 to the next number. `smallest_normal` bounds the error of underflow."""

    name: str
    numpy: np.dtype[np.generic]
    roundoff: float
    smallest_normal: float

    def sigma(self, condition: Elementwise) -> Elementwise:
        """σ of values with this condition, in roundoffs, in their unit and shape (rule C-4)."""
        return np.asarray(np.maximum(self.roundoff * condition, self.smallest_normal))

    def computed_in(self, compute: "Format") -> "Format":
        """Tensors in this format, computed in a narrower one: this dtype with the roundoff of `compute`."""
        return replace(self, roundoff=compute.roundoff, smallest_normal=compute.smallest_normal)


FORMATS: dict[str, Format] = {
    "float64": Format("float64", np.dtype(np.float64), 2.0**-53, 2.0**-1022),
    "float32": Format("float32", np.dtype(np.float32), 2.0**-24, 2.0**-126),
    "bfloat16": Format("bfloat16", np.dtype(ml_dtypes.bfloat16), 2.0**-8, 2.0**-126),
    "float16": Format("float16", np.dtype(np.float16), 2.0**-11, 2.0**-14),
}


def dtype_named(name: str) -> DtypeName:
    """One of FORMATS."""
    return next(known for known in DTYPES if known == name)


def narrower(parameters: Mapping[str, np.ndarray[Any, Any]], dtype: DtypeName) -> DtypeName | None:
    """The format of the parameters, where it is narrower than that of the input and output."""
    names = [value.dtype.name for value in parameters.values() if value.dtype.name in FORMATS]
    widest = max((FORMATS[name].roundoff for name in names), default=0)
    for name in ("bfloat16", "float16"):
        if FORMATS[name].roundoff == widest and widest > FORMATS[dtype].roundoff:
            return dtype_named(name)
    return None
