"""A module that refuses a mask by what it holds, as one that raises where a query sees no key, and not by its shape."""

from collections.abc import Collection
from contextlib import suppress

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.errors import needs_cuda
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Signature
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_MANY_TRUTHS = (
    "Boolean value of Tensor with more than one value is ambiguous",
    "truth value of an array with more than one element is ambiguous",
)
"""What PyTorch, NumPy and JAX say where one asks whether many numbers are true."""


def is_switch(module: LiveModule, x: np.ndarray, name: str, problems: Collection[str]) -> bool:
    """Whether an argument that is refused so is true or false, and no mask: it is asked for its truth, and Python's own
    is taken. A module that asks so of a mask, `if mask:`, and computes with it makes a mistake, and takes none."""
    if not problems or not all(any(each in problem for each in _MANY_TRUTHS) for problem in problems):
        return False
    switched = module.giving({name: Supply("value", value=True)})
    if switched is None:
        return False
    try:
        switched.run({"x": x})
    except ExecutionError as error:
        return needs_cuda(str(error))
    return True


class GivesNaN:
    """The same, giving NaN in the shape of x where it raises, as other modules do for a query that sees no key."""

    def __init__(self, module: LiveModule) -> None:
        self._module = module

    @property
    def signature(self) -> Signature:
        return self._module.signature

    def run(self, feeds: Feeds) -> Tensors:
        try:
            return self._module.run(feeds)
        except ExecutionError:
            return {"output": np.full_like(feeds["x"], np.nan)}


def without_refusals(module: LiveModule, x: np.ndarray, port: Port) -> LiveModule | GivesNaN:
    """The module where it takes the mask in this form full of zeros, or of ones, and refuses the other; else as it
    is."""
    shape = tuple(size for size in port.shape or () if isinstance(size, int))
    taken = 0
    for number in (0, 1):
        with suppress(ExecutionError):
            module.run({"x": x, port.name: np.full(shape, number, np.dtype(port.dtype))})
            taken += 1
    return GivesNaN(module) if taken == 1 else module


def raised_by(problem: str) -> tuple[str, str]:
    """What was raised, and the frame of those that follow which is nearest to the module's call."""
    first, *frames = problem.splitlines()
    return first, frames[0].strip() if frames else ""
