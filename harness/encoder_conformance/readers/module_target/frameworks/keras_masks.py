"""The mask that Keras keeps beside an array, as `Embedding(mask_zero=True)` makes it, and hands on to its attention."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import keras
import numpy as np
from keras.src.backend.common.masking import set_keras_mask

from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.frameworks.keras_built import likely_widths
from encoder_conformance.readers.module_target.live import LiveModule, Signature
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE

Made = TypeVar("Made", bound=LiveModule)
KERAS_MASK = "keras_mask"
"""What that mask [batch, sequence] is called; it is true where a position holds data."""


@dataclass(frozen=True)
class _WithItsMask:
    """Calls a layer; the x, its first argument, has a mask of Keras where one is given."""

    layer: Any

    def __call__(self, *by_place: Any, **by_name: Any) -> Any:
        mask = by_name.pop(KERAS_MASK, None)
        if mask is None:
            return self.layer(*by_place, **by_name)
        x = by_place[0] if by_place else next(iter(by_name.values()))
        set_keras_mask(x, keras.ops.cast(mask, "bool"))
        try:
            return self.layer(*by_place, **by_name)
        finally:  # the next call may be given the same x, and no mask
            set_keras_mask(x, None)


def with_its_mask(layer: Any, signature: Signature, made: Callable[[Any, Signature], Made]) -> Made:
    """The layer, and where no argument of it is a mask, with that one, if it changes what the layer gives. `made`: the
    layer by what calls it, and how. On PyTorch it is not asked: what watches a tensor there hands on another, and Keras
    keeps its mask by the tensor itself."""
    plain = made(layer, signature)
    if signature.masks or keras.backend.backend() == "torch":
        return plain
    masked = made(_WithItsMask(layer), replace(signature, masks=(KERAS_MASK,)))
    mask = np.ones((BATCH, SEQUENCE), np.bool_)
    mask[:, -1] = False
    for width in likely_widths(layer):
        x = np.random.default_rng(0).normal(size=(BATCH, SEQUENCE, width)).astype(np.float32)
        try:
            before, again = (plain.run({"x": x})["output"] for _ in range(2))
            after = masked.run({"x": x, KERAS_MASK: mask})["output"]
        except (ExecutionError, AttributeError):
            continue
        return masked if not differ(before, again) and differ(before, after) else plain
    return plain
