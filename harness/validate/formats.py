"""The floating-point format that a file computes in."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from encoder_conformance.spec.dtypes import FORMATS, DtypeName


def dtype_named(name: str) -> DtypeName:
    """One of FORMATS."""
    return next(known for known in ("float64", "float32", "bfloat16", "float16") if known == name)


def narrower(parameters: Mapping[str, npt.NDArray[Any]], dtype: DtypeName) -> DtypeName | None:
    """The format of the parameters, where it is narrower than that of the input and output."""
    names = [value.dtype.name for value in parameters.values() if value.dtype.name in FORMATS]
    widest = max((FORMATS[name].roundoff for name in names), default=0)
    for name in ("bfloat16", "float16"):
        if FORMATS[name].roundoff == widest and widest > FORMATS[dtype].roundoff:
            return dtype_named(name)
    return None
