"""Sees that an output is right but for keys that are out of reach: beyond a window, a number of keys, or a block."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from encoder_conformance.diagnosis.in_sigma import in_sigma, rms
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import BSD, Bools, Elementwise
from encoder_conformance.spec.case import Case, joined
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.size import is_large

_SIZES = (16, 31, 32, 63, 64, 127, 128, 255, 256)
"""Windows to each side, numbers of keys, and blocks: powers of two, and what is left of them beside the query."""
_SHORT = 64
"""Sequences that are not looked at: a catalogue's deviation shows in them, and each look costs a play for each size."""
_SAME = 4096.0
"""Roundoffs of the largest number by which an output may differ from what is predicted of it."""
_NEARER = 8.0
"""How much farther it then is from the specified output."""


def out_of_reach(case: Case, output: BSD, sigma: BSD, dtype: Format) -> str | None:
    """Which keys no query attends to though it may, and the rms, in σ, that this leaves of an output; None if that is
    not all that is wrong. `output` and `sigma`, of the right one, are [B, S, D]."""
    S, is_plain = case.situation.sequence, case.situation.given.layout == "batch_first" and not case.layer.takes_memory
    if _SHORT >= S or is_large(case.layer) or not is_plain or output.shape != case.x_shape:
        return None
    start, rows = given(case), case.specified()
    right = forward(case.layer, start, Arithmetic(np.float64))["output"][rows]
    for said, reached in _reaches(S):
        inputs = replace(start, mask=joined(start.mask, reached))
        with np.errstate(all="ignore"):  # a query may have no key left
            predicted = forward(case.layer, inputs, Arithmetic(np.float64))["output"][rows]
        same = _SAME * dtype.roundoff * np.abs(predicted).max(initial=0.0)
        if np.abs(output[rows].astype(np.float64) - predicted).max(initial=0.0) <= same:
            if not _is_nearer(output[rows].astype(np.float64), predicted, right):
                continue
            left = in_sigma(output[rows], predicted, sigma[rows])
            return f"{said} ({rms(left[np.isfinite(sigma[rows])]):.2g} σ of the specified output)"
    return None


def _is_nearer(output: Elementwise, predicted: Elementwise, right: Elementwise) -> bool:
    """Whether the output is far nearer to what is predicted than to the right one, as which it is wrong: where the keys
    that are left out are padding the two are one."""
    with np.errstate(invalid="ignore"):
        left, apart = (np.nanmax(np.abs(output - each), initial=0.0) for each in (predicted, right))
    return bool(apart > _NEARER * left)


def _reaches(S: int) -> Iterator[tuple[str, Bools]]:
    """What is out of reach, and the mask [1, 1, S, S], true where a query reaches a key; each leaves some out."""
    query, key = np.arange(S)[:, None], np.arange(S)
    for size in (size for size in _SIZES if size < S):
        if size < S - 1:
            yield f"those more than {size} positions away from the query", (np.abs(query - key) <= size)[None, None]
        yield f"those after the first {size}", np.broadcast_to(key < size, (1, 1, S, S))
        yield f"those of other blocks of {size} positions", (query // size == key // size)[None, None]
