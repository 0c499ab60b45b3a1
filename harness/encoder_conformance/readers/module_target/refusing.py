"""A module that refuses a mask by what it holds, as one that raises where a query sees no key, and not by its shape."""

from contextlib import suppress

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Signature
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError


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
