"""Files narrower than what goes in and out: the format that they compute in, that of their weights, and its cost."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.spec.dtypes import FORMATS, DtypeName

Array = npt.NDArray[Any]


def dtype_named(name: str) -> DtypeName:
    """One of FORMATS."""
    return next(known for known in ("float64", "float32", "bfloat16", "float16") if known == name)


def narrower(held: Mapping[str, Array], dtype: DtypeName) -> DtypeName | None:
    """The format that the parameters are used in, where it is narrower than that of the input and output."""
    widest = max(
        (FORMATS[value.dtype.name].roundoff for value in held.values() if value.dtype.name in FORMATS), default=0
    )
    for name in ("bfloat16", "float16"):
        if FORMATS[name].roundoff == widest and widest > FORMATS[dtype].roundoff:
            return dtype_named(name)
    return None


def said_of_format(rounded_as: DtypeName) -> str:
    return f"computes in {rounded_as}, and is judged by its roundoff"


def said_of_stored(stored: Mapping[str, str], count: int, dtype: DtypeName) -> str:
    """`stored`: parameter → the narrower format that it is stored in. What is computed with it, as it is, is `dtype`:
    to judge that by the roundoff of the weights would be to excuse what the rounding of weights cannot do."""
    formats = ", ".join(f"{n} of {count} parameters as {name}" for name, n in Counter(stored.values()).items())
    return f"stores {formats}; computes in {dtype}, and is judged by its roundoff with the weights as they are stored"


def cost(case: Case, due: Mapping[str, Array]) -> str:
    """How far the weights of the case, which are `due` rounded, take the output from that of `due` themselves."""
    cases = case, Case(case.layer, case.situation, held=CaseParameters.of(due))
    rounded, exact = (evaluate(one, Arithmetic(), None).stages["output"] for one in cases)
    compared = case.compared("output")["output"]
    error = float(np.sqrt(np.mean((rounded - exact)[compared] ** 2) / np.mean(exact[compared] ** 2)))
    return f"; against what it was made from, the relative error is {error:.2g} (rms, {case.situation.situation})"
