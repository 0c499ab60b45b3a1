"""What a mask input does: what hides in it, along which axis, and how well."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.impls.onnx_file.interface.ports import numpy_dtype
from encoder_conformance.spec.axes import Array
from encoder_conformance.wire.description import MaskMeaning


@dataclass(frozen=True)
class Polarity:
    """`open` hides nothing, `shut` hides a key."""

    meaning: MaskMeaning
    open: float
    shut: float


@dataclass(frozen=True)
class MaskSemantics:
    """`axes` has a letter for each: B, H, S or 1, and X for none of them. Keys are counted along `key_axis`.

    `polarity` None: flagging a position hides it from no other; `fill` is then what lets positions see each other, and
    `flipped` says that +1e9 hides, where -1e9 should. `past_softmax`: the scores do not depend on it. `leakage` is the
    influence left to a hidden position. `counted`: only how many ones it has counts, and they are taken for the first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: str
    polarity: Polarity | None
    key_axis: int = -1
    leakage: float = 0.0
    fill: float = 0.0
    flipped: bool = False
    past_softmax: bool = False
    counted: bool = False

    @property
    def open(self) -> float:
        """The number that hides nothing."""
        return self.polarity.open if self.polarity else self.fill

    def filled(self, value: float, shape: tuple[int, ...] | None = None) -> Array:
        return np.full(self.shape if shape is None else shape, value, numpy_dtype(self.dtype))
