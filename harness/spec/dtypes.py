"""The floating-point formats in which cases are run (clause D-1)."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from encoder_conformance.spec.level import DtypeName as DtypeName


@dataclass(frozen=True)
class Format:
    """`roundoff` is u, half the distance from 1 to the next number. `smallest_normal` bounds the error of underflow."""

    name: str
    numpy: np.dtype[np.generic]
    roundoff: float
    smallest_normal: float

    def computed_in(self, compute: "Format") -> "Format":
        """Tensors in this format, computed in a narrower one: this dtype with the roundoff of `compute`."""
        return replace(self, roundoff=compute.roundoff, smallest_normal=compute.smallest_normal)


FORMATS: dict[str, Format] = {
    "float64": Format("float64", np.dtype(np.float64), 2.0**-53, 2.0**-1022),
    "float32": Format("float32", np.dtype(np.float32), 2.0**-24, 2.0**-126),
    "bfloat16": Format("bfloat16", np.dtype(ml_dtypes.bfloat16), 2.0**-8, 2.0**-126),
    "float16": Format("float16", np.dtype(np.float16), 2.0**-11, 2.0**-14),
}
