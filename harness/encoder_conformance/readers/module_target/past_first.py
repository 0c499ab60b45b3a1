"""Which masks of padding have no place for the first position, as of a token that stands before what they are of."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_DTYPES = np.bool_, np.float32, np.int64


def with_masks_past_first(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks without the first position that it refuses as [batch, sequence], and takes as
    [batch, sequence − 1]."""
    for name in module.signature.masks:
        known, bare = module.signature.arrangement, module.bare()
        if not may_be_mask(name) or name in known.beside or _takes(bare, name, x, x.shape[1]):
            continue
        if _takes(bare, name, x, x.shape[1] - 1) or _takes(bare, name, x[:1], x.shape[1] - 1):
            module = module.arranged(replace(known, past_first=(*known.past_first, name))) or module
    return module


def _takes(module: LiveModule, name: str, x: Array, length: int) -> bool:
    for dtype in _DTYPES:
        with suppress(ExecutionError):
            module.run({"x": x, name: np.ones((x.shape[0], length), dtype)})
            return True
    return False
