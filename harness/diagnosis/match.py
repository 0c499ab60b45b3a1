"""How well a hypothesis, some deviations together, accounts for what was seen in some cases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from encoder_conformance.deviations.catalogue import is_noisy
from encoder_conformance.diagnosis.evidence import UNCOMPARABLE, Evidence
from encoder_conformance.diagnosis.otherwise import otherwise
from encoder_conformance.diagnosis.predictions import drops, noisy_steps, prediction_of
from encoder_conformance.diagnosis.stage_errors import Errors
from encoder_conformance.judge.observation import Array
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.deviation import Deviation

_SCATTERED = 4.0
"""A spread, in σ, from which a tensor's scatter is the hypothesis' own, and not the format's."""
_WITHIN = 8.0
"""The factor within which a scatter's size can be predicted: frameworks round inside a step at different places."""
GUESSED = 1000.0
"""The factor within which the noise of a wrong layer can be guessed from that of the right one."""


@dataclass(frozen=True)
class Fit:
    """A hypothesis in one case: an entry a stage. `spread` is how far the predicted values scatter, in σ, noise and
    all; `rms` and `max`, of observed − predicted, are in that."""

    stages: tuple[str, ...]
    errors: Errors
    spread: Array
    rms: Array
    max: Array
    in_line: npt.NDArray[np.bool_]
    cost: Array

    @property
    def first_out_of_line(self) -> str | None:
        return None if self.in_line.all() else self.stages[int(self.in_line.argmin())]


def fit(deviations: tuple[Deviation, ...], evidence: Evidence, limits: Constants, *, measured: bool = False) -> Fit:
    errors = evidence.against(deviations, measured=measured)
    spread = np.hypot(1.0, errors.scatter)
    rms, largest = errors.rms / spread, errors.max / spread
    wide = spread > _SCATTERED
    # A predicted scatter is known in size only, and must be seen: far less or far more of it is no match (V-4).
    of_its_size = (rms > 1 / _WITHIN) & (rms < _WITHIN)
    in_line = np.where(wide, of_its_size, (rms <= limits.rms_limit) & (largest <= limits.max_limit))
    # −log likelihood an element: ½ rms² + log spread if the spread is known, log rms if it is only a least one.
    cost = np.log(spread) + np.where(wide, np.maximum(rms**2 - 1, 0) / 2, np.log(np.maximum(rms, 1.0)))
    return Fit(evidence.stages, errors, spread, rms, largest, in_line, np.minimum(cost, np.log(UNCOMPARABLE)))


@dataclass
class Match:
    """One hypothesis against the evidence that it has been tried on."""

    deviations: tuple[Deviation, ...]
    limits: Constants
    fits: list[Fit] = field(default_factory=list)
    tried_on: list[Evidence] = field(default_factory=list)

    def try_on(self, evidence: Evidence, *, measured: bool = False) -> None:
        """Add one case to the evidence, unless it is there. `measured`: in the noise of the wrong layer itself.

        What nobody specifies (M-3, M-4), and what a format keeps of a sum (V-3), is as puts the case in line.
        """
        if not any(tried is evidence for tried in self.tried_on):
            self.tried_on.append(evidence)
            found = fit(self.deviations, evidence, self.limits, measured=measured)
            if not found.in_line.all():
                others = (
                    fit(self.deviations, other, self.limits, measured=measured)
                    for other in otherwise(evidence, self.deviations)
                )
                found = next((other for other in others if other.in_line.all()), found)
            self.fits.append(found)

    def within(self, evidence: Sequence[Evidence]) -> "Match":
        """The same, if all that it was tried on is among this evidence; else the hypothesis alone, tried on nothing."""
        among = all(any(tried is each for each in evidence) for tried in self.tried_on)
        return self if among else Match(self.deviations, self.limits)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(deviation.deviation for deviation in self.deviations)

    @property
    def those_with_stages_first(self) -> list[Fit]:
        """The cases, but last those that were asked for the output alone: which say of no stage before it."""
        return sorted(self.fits, key=lambda fit: len(fit.stages) == 1)

    @property
    def exact(self) -> bool:
        """Whether it predicts values, and not only how far they scatter."""
        return not any(map(is_noisy, self.deviations))

    @property
    def came_true(self) -> bool:
        """Whether something that each of what is noisy predicts, beside its size, was seen to be so, and nothing
        that it predicts was seen not to be."""
        noisy = [deviation for deviation in self.deviations if is_noisy(deviation)]
        return not self._stages("refuted") and all(self._own(each) & self._stages("came_true") for each in noisy)

    @property
    def refuted(self) -> bool:
        """Whether what one of them predicts was looked for and never seen: then it is not what it is the size of."""
        true, wrong = self._stages("came_true"), self._stages("refuted")
        noisy = [deviation for deviation in self.deviations if is_noisy(deviation)]
        return any(self._own(each) & wrong and not self._own(each) & true for each in noisy)

    @property
    def predictions(self) -> tuple[str, ...]:
        """What came true, in a few words each."""
        of = noisy_steps(self.deviations)
        said: dict[str, list[str]] = {}
        for stage in (stage for stage in of if stage in self._stages("came_true")):
            said.setdefault(prediction_of(of[stage]), []).append(stage)
        return tuple(f"{words} ({', '.join(stages)})" for words, stages in said.items())

    def _own(self, deviation: Deviation) -> set[str]:
        """The stages that are this deviation's to predict: what drops is applied last."""
        others = [other for other in self.deviations if drops([other]) and not drops([deviation])]
        return {*noisy_steps([deviation])} - {*noisy_steps(others)}

    def _stages(self, what: Literal["came_true", "refuted"]) -> frozenset[str]:
        return frozenset[str]().union(*(getattr(fit.errors, what) for fit in self.fits))

    @property
    def costs(self) -> Array:
        """One of every stage of every case, in a row."""
        return np.concatenate([fit.cost for fit in self.fits])

    @property
    def out(self) -> npt.NDArray[np.bool_]:
        """Whether it is out of line: every stage of every case, in a row."""
        return np.concatenate([~fit.in_line for fit in self.fits])

    @property
    def far(self) -> npt.NDArray[np.bool_]:
        """Whether it is out of line, however the noise was guessed: every stage of every case, in a row."""
        return np.concatenate([~fit.in_line & (fit.rms >= GUESSED) for fit in self.fits])

    @property
    def moves(self) -> npt.NDArray[np.bool_]:
        """Whether the hypothesis changes it: every stage of every case, in a row."""
        return np.concatenate([fit.errors.touched for fit in self.fits])

    @property
    def cost(self) -> float:
        """Mean over cases and stages: 0 when everything is in line and nothing scatters."""
        return float(self.costs.mean()) if self.fits else 0.0

    @property
    def out_of_line(self) -> int:
        return sum(int(np.sum(~fit.in_line)) for fit in self.fits)

    @property
    def explains(self) -> bool:
        return self.out_of_line == 0

    @property
    def rms(self) -> float:
        return max((float(fit.rms.max()) for fit in self.fits), default=0.0)

    @property
    def amplitude(self) -> float | None:
        """The matched filter: how much of the hypothesis' own direction is in what was seen; 1 is all of it."""
        return self._along / self._length if self._length else None

    @property
    def significance(self) -> float | None:
        """The filter's signal-to-noise ratio: the error along that direction, in σ, over all elements and cases."""
        return float(self._along / self._length**0.5) if self._length else None

    @property
    def first_stage(self) -> str | None:
        """The first stage that the hypothesis itself moves out of line."""
        for fit in self.those_with_stages_first:
            shows = (fit.errors.moved > self.limits.rms_limit) | (fit.spread > _SCATTERED)
            if shows.any():
                return fit.stages[int(shows.argmax())]
        return None

    @property
    def shows(self) -> bool:
        """Whether the hypothesis itself would be seen in these cases at all."""
        return self.first_stage is not None

    @property
    def _along(self) -> float:
        return sum(fit.errors.along for fit in self.fits)

    @property
    def _length(self) -> float:
        return sum(fit.errors.length for fit in self.fits)
