"""A whole module as a function of named inputs: an encoder from ids, a layer, a pooled model; whatever is in it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.given_as import Argument, GivenAs, given_as
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.spec.axes import Array


class WholeModule(ABC):
    """`taken`: the arguments that may take an array, in order; `free`: whether it takes any other name too."""

    taken: Sequence[Argument]
    free: bool = False
    _last: "tuple[tuple[str, int | None, float], WholeModule] | None" = None

    def disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeModule":
        """A copy in this format ("own": as it was given), each parameter another by up to `roundoff` of itself.

        `seed` None: none is. The last copy is kept, since many calls follow each other.
        """
        key = precision, seed, roundoff
        if self._last is None or self._last[0] != key:
            if self._last is not None:
                self._last = None  # two copies of a large model are not held at a time
                give_freed_memory_back()
            self._last = key, self._disturbed(precision, seed, roundoff)
        return self._last[1]

    @abstractmethod
    def _disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeModule":
        """A new copy, as `disturbed` says."""

    @abstractmethod
    def outputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Argument → array, or several in one, to output → array, in the order in which they are returned."""

    def steps(self, given: Mapping[str, Any]) -> tuple[list[TracedStep], dict[str, Array]]:
        """What it computes inside, and the values of floating-point numbers by the number of their step. Raises
        RuntimeError where that cannot be seen."""
        raise RuntimeError("what it computes inside cannot be seen")

    def given_as(self, inputs: Mapping[str, Array]) -> GivenAs:
        """Which argument each input is. Raises BadTarget where that is not known."""
        return given_as(inputs, self.taken, free=self.free)


class WholeLayer(WholeModule):
    """A layer that takes x and masks, as whatever its framework calls: its output has the shape of x."""

    def __init__(self, live: LiveModule) -> None:
        self._live = live
        names = (live.signature.x, *live.signature.masks, *live.signature.arrays)
        self.taken = [Argument(name, needed=name == live.signature.x) for name in names]

    def _disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeLayer":
        """A copy. Such a layer is held in float32, and that is "own" here."""
        copied = self._live.in_dtype("float32" if precision == "own" else precision)
        if seed is not None:
            flat = copied.flat()
            drawn = np.random.default_rng(seed).uniform(-1.0, 1.0, flat.shape)
            copied.assign((flat * (1.0 + roundoff * drawn)).astype(flat.dtype))
        return WholeLayer(copied)

    def outputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """The one output. x in the format of the parameters."""
        feeds = dict(given)
        x = feeds.pop(self._live.signature.x).astype(self._live.flat().dtype)
        return {"output": self._live.call({"x": x, **feeds})}
