"""The floating-point formats that a case may be asked in (clause D-1)."""

from dataclasses import dataclass, replace
from typing import Literal

import ml_dtypes
import numpy as np

DtypeName = Literal["float64", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Format:
    """`roundoff` is u, half the distance from 1 to the next number; `smallest_normal` bounds what underflow costs."""

    name: str
    numpy: np.dtype[np.generic]
    roundoff: float
    smallest_normal: float

    def computed_in(self, inside: "Format") -> "Format":
        """What comes and goes in this format, judged by the roundoff of a narrower one that is computed in."""
        return replace(self, roundoff=inside.roundoff, smallest_normal=inside.smallest_normal)


FORMATS: dict[str, Format] = {
    "float64": Format("float64", np.dtype(np.float64), 2.0**-53, 2.0**-1022),
    "float32": Format("float32", np.dtype(np.float32), 2.0**-24, 2.0**-126),
    "bfloat16": Format("bfloat16", np.dtype(ml_dtypes.bfloat16), 2.0**-8, 2.0**-126),
    "float16": Format("float16", np.dtype(np.float16), 2.0**-11, 2.0**-14),
}
