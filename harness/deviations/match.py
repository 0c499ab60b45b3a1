"""How well a hypothesis, some deviations together, accounts for what was seen in some cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from harness.deviations.catalogue import is_noisy
from harness.deviations.play import played, played_with_noise
from harness.deviations.sighting import Array, Sighting
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.deviation import Deviation

UNCOMPARABLE = 1e12
"""The error, in σ, of a tensor that cannot be compared: enough to be worse than anything that can."""
_SCATTERED = 4.0
"""A spread from which a tensor's scatter is the hypothesis' own, and not the format's."""
_WITHIN = 8.0
_DRAWS = 4
"""The factor within which a scatter's size can be foretold: frameworks round inside a step at different places."""


@dataclass(frozen=True)
class TensorMatch:
    """`rms` and `max` of observed − foretold; `moved` is the rms of foretold − golden. All in σ, or in the scatter
    that the hypothesis foretells where that is wider (`spread`, in σ)."""

    stage: str
    rms: float
    max: float
    moved: float
    spread: float = 1.0

    def in_line(self, limits: Constants) -> bool:
        """A foretold scatter is known in size only, and must be seen: far less or far more of it is no match."""
        if self.spread > _SCATTERED:
            return 1 / _WITHIN < self.rms < _WITHIN
        return self.rms <= limits.rms_limit and self.max <= limits.max_limit

    @property
    def cost(self) -> float:
        if self.spread > _SCATTERED:
            return float(abs(np.log(max(self.rms, 1e-12))) + np.log(self.spread))
        return float(np.log(max(self.rms, 1.0)) + np.log(self.spread))


@dataclass
class Match:
    """One hypothesis against the sightings that it has been tried on."""

    deviations: tuple[Deviation, ...]
    limits: Constants
    measured: bool = False
    """Whether σ is the wrong layer's own: slower, and right where it makes other noise than the right one."""
    cases: list[list[TensorMatch]] = field(default_factory=list)
    along: float = 0.0
    length: float = 0.0

    def try_on(self, sighting: Sighting) -> None:
        """Add one case to the evidence."""
        wrong, condition = self._foretold(sighting.case)
        noisy = any(is_noisy(deviation) for deviation in self.deviations)
        scatter = self._scatter(sighting) if noisy else {}
        tensors = []
        for stage, (off, moved) in sighting.errors(wrong, condition).items():
            tensors.append(_tensor(stage, off, moved, scatter.get(stage)))
            if off is not None and moved is not None:
                self.along += float(np.sum((off + moved) * moved))  # off + moved = observed − golden
                self.length += float(np.sum(moved * moved))
        self.cases.append(tensors)
        self.__dict__.pop("cost", None)

    def _scatter(self, sighting: Sighting) -> dict[str, float]:
        """By stage, the rms of foretold − golden over several draws of what is left to chance."""
        squares: dict[str, float] = {}
        for draw in range(_DRAWS):
            for stage, (_, moved) in sighting.errors(played(sighting.case, self.deviations, draw)).items():
                displaced = UNCOMPARABLE if moved is None else _rms(moved)
                squares[stage] = squares.get(stage, 0.0) + displaced**2 / _DRAWS
        return {stage: float(np.sqrt(square)) for stage, square in squares.items()}

    def _foretold(self, case: Case) -> tuple[dict[str, Array] | None, dict[str, Array] | None]:
        if not self.deviations:
            return None, None
        if self.measured and not any(map(is_noisy, self.deviations)):
            return played_with_noise(case, self.deviations)
        return played(case, self.deviations), None

    @cached_property
    def cost(self) -> float:
        """Mean over cases and tensors of log rms: 0 when everything is in line."""
        costs = [tensor.cost for tensors in self.cases for tensor in tensors]
        return float(np.mean(costs)) if costs else 0.0

    @property
    def explains(self) -> bool:
        return all(tensor.in_line(self.limits) for tensors in self.cases for tensor in tensors)

    @property
    def prefix(self) -> float:
        """How far, on average over the cases, the stages are in line before the first that is not; 1 is all the way."""
        return float(np.mean([_prefix(tensors, self.limits) for tensors in self.cases]))

    @property
    def shows(self) -> bool:
        """Whether the hypothesis itself would be seen in these cases at all."""
        return self.first_stage is not None

    @property
    def rms(self) -> float:
        return max((tensor.rms for tensors in self.cases for tensor in tensors), default=0.0)

    @property
    def amplitude(self) -> float:
        """The matched filter: how much of the hypothesis' own direction is in what was seen; 1 is all of it."""
        return self.along / self.length if self.length else 0.0

    @property
    def significance(self) -> float:
        """The filter's signal-to-noise ratio: the error along that direction, in σ, over all elements and cases."""
        return self.along / self.length**0.5 if self.length else 0.0

    @property
    def first_stage(self) -> str | None:
        """The first stage that the hypothesis itself moves out of line."""
        moved = (
            t.stage
            for tensors in self.cases
            for t in tensors
            if t.moved > self.limits.rms_limit or t.spread > _SCATTERED
        )
        return next(moved, None)


def _tensor(stage: str, off: Array | None, moved: Array | None, scatter: float | None) -> TensorMatch:
    displaced = UNCOMPARABLE if moved is None else _rms(moved)
    if scatter is not None and off is not None and moved is not None:
        # Foretold is the size of the scatter, not its values: compare observed with golden, in that size.
        spread = float(np.sqrt(1 + scatter**2))
        seen = (off + moved) / spread
        return TensorMatch(stage, _rms(seen), 0.0, scatter, spread)
    if off is None:
        return TensorMatch(stage, UNCOMPARABLE, UNCOMPARABLE, displaced)
    return TensorMatch(stage, _rms(off), float(np.abs(off).max(initial=0.0)), displaced)


def _rms(errors: Array) -> float:
    with np.errstate(over="ignore"):
        return float(min(np.sqrt(np.mean(errors**2)), UNCOMPARABLE)) if errors.size else 0.0


def _prefix(tensors: Sequence[TensorMatch], limits: Constants) -> float:
    for index, tensor in enumerate(tensors):
        if not tensor.in_line(limits):
            return index / len(tensors)
    return 1.0
