"""The floating-point formats that a case may be asked in (clause D-1)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """`roundoff` is u, half the distance from 1 to the next number; `smallest_normal` bounds what underflow costs."""

    name: str
    numpy: np.dtype[np.generic]
    roundoff: float
    smallest_normal: float


FORMATS: dict[str, Format] = {
    "float64": Format("float64", np.dtype(np.float64), 2.0**-53, 2.0**-1022),
    "float32": Format("float32", np.dtype(np.float32), 2.0**-24, 2.0**-126),
}
