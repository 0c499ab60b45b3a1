"""The meaning of a mask input: which number hides, along which axis, and how well."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.protocol.arguments import GraphMask, MaskMeaning
from encoder_conformance.readers.onnx_file.interface.angles import AngleInput
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class Polarity:
    """`open` hides nothing, `shut` hides a key."""

    meaning: MaskMeaning
    open: float
    shut: float


ATTEND, IGNORE = Polarity("attend", 1, 0), Polarity("ignore", 0, 1)


def additive(dtype: str, sign: int = -1) -> Polarity:
    """The polarity of numbers that are added to the scores; `sign` +1 is that of a mask that is subtracted."""
    return Polarity("additive", 0, sign * (6e4 if dtype == "float16" else 1e9))


def polarities_of(dtype: str) -> list[Polarity]:
    """The polarities that a mask of this dtype may have."""
    return [ATTEND, IGNORE, additive(dtype)] if dtype in FLOATS else [ATTEND, IGNORE]


@dataclass(frozen=True)
class MaskSemantics:
    """`axes` has a letter for each: B, H, S or 1, and X for none of them. Keys are counted along `key_axis`.

    `polarity` None: flagging a position hides it from no other; `fill` is then what lets positions see each other, and
    `flipped` says that +1e9 hides, where -1e9 should. `past_softmax`: the scores do not depend on it. `leakage` is the
    influence left to a hidden position. `counted`: only how many ones it has counts, and they are taken for the first.
    `turning`: it is no mask, and says by what angles positions turn. `past_first`: it has no place for the first
    position, which it hides from none.
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
    turning: AngleInput | None = None
    past_first: bool = False

    @property
    def letters(self) -> tuple[str, ...]:
        """Each axis: "B", "H", "Q", "K", "BH" for both in one, "" for a size of 1."""
        names = {"X": "BH", "1": "", "S": "Q"}
        found = [names.get(letter, letter) for letter in self.axes]
        if "S" in self.axes and self.axes[self.key_axis] == "S":
            found[self.key_axis] = "K"
        return tuple(found)

    @property
    def keys_first(self) -> bool:
        """Whether its axis of keys stands before that of queries."""
        letters = "".join(self.letters)
        return "Q" in letters and "K" in letters.partition("Q")[0]

    @property
    def open(self) -> float:
        """The number that hides nothing."""
        return self.polarity.open if self.polarity else self.fill

    def filled(self, value: float, shape: tuple[int, ...] | None = None) -> Array:
        """A mask of this number everywhere, at the sizes of the probe or at others; `turning` says its own."""
        shape = self.shape if shape is None else shape
        if self.turning is None:
            return np.full(shape, value, np.dtype(self.dtype))
        return self.turning.filled(shape, self.axes.index("S"), self.dtype)

    def as_input(self) -> GraphMask:
        meaning = self.polarity.meaning if self.polarity else None
        return GraphMask(name=self.name, axes=self.axes, meaning=meaning, counted=self.counted)


def axes_at(shape: tuple[int, ...], B: int, S: int) -> str:
    """The letters of a mask's axes, by their sizes at batch B and sequence S."""
    axes = "".join("1" if n == 1 else "S" if n == S else "B" if n == B else "X" for n in shape)
    if len(shape) == 4 and axes[1] != "1":
        axes = axes[0] + "H" + axes[2:]
    if len(shape) == 2 and B in (1, S) and shape[0] == B:
        axes = "BS"
    return axes
