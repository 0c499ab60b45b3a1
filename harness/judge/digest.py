"""A digest of an answer, by which two runs see that it has the same bits."""

from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from encoder_conformance.judge.answers import Answers, Sampled

_BYTES = 12
"""Of 10⁶ answers two that differ have one digest with a probability of 10⁻¹⁷."""


def digest_of(answers: Answers) -> str:
    """Names, dtypes, shapes and values of all tensors, in hexadecimal. Of a sampled tensor: of the sampled values."""
    state = blake2b(digest_size=_BYTES)
    for name in sorted(answers):
        tensor = answers[name]
        values = tensor.values if isinstance(tensor, Sampled) else tensor
        state.update(f"{name}\0{_name(tensor.dtype)}\0{tensor.shape}\0".encode())
        state.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """NumPy makes it anew each time, which takes longer than the digest of a small tensor."""
    return str(dtype)
