"""Matches a hypothesis, some deviations together, with the evidence: how well it accounts for what was observed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.in_sigma import UNCOMPARABLE, StageErrors
from encoder_conformance.diagnosis.noisy_predictions import has_dropout, noisy_steps, prediction_of
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.oracle.edited_masks import leaves_an_empty_row
from encoder_conformance.oracle.forms.softmax import STORED, WITHOUT_LARGEST
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.size import is_large
from encoder_conformance.spec.stages import step_of

SCATTERED = 4.0
"""A spread, in σ, from which a tensor's scatter is the hypothesis' own, and not the format's."""
_WITHIN = 8.0
"""The factor within which a scatter's size can be predicted: frameworks round inside a step at different places. Of the
draws the one that scatters least bounds it from below: some orders of a sum are quiet, and some exact."""
GUESSED = 1000.0
"""The factor within which the noise of a wrong layer can be guessed from that of the right one."""


@dataclass(frozen=True)
class Fit:
    """A hypothesis in one case; arrays have one entry for each stage.

    `spread` is how far the predicted values scatter, in σ, with noise; `rms`, of observed − predicted, is in units of
    the spread. `cost` is −log likelihood of an element, 0 where nothing scatters and all is in line.
    """

    stages: tuple[str, ...]
    errors: StageErrors
    spread: Array
    rms: Array
    in_line: Bools
    cost: Array

    @property
    def first_out_of_line(self) -> str | None:
        return None if self.in_line.all() else self.stages[int(self.in_line.argmin())]


def fit(deviations: tuple[Deviation, ...], evidence: Evidence, *, measured: bool = False) -> Fit:
    """Compare the hypothesis with one case; `measured`: in the noise of the wrong layer, which is slow."""
    errors = evidence.errors_of(deviations, measured=measured)
    limits = constants()
    spread = np.hypot(1.0, errors.scatter)
    rms, largest = errors.rms / spread, errors.max / spread
    wide = spread > SCATTERED
    # A predicted scatter is known in size only, and must be seen: far less or far more of it is no match (V-4).
    quiet = np.hypot(1.0, errors.least)
    seen = (errors.rms > quiet / _WITHIN) | (quiet <= SCATTERED)
    of_its_size = seen & (rms < _WITHIN)
    in_line = np.where(wide, of_its_size, (rms <= limits.rms_limit) & (largest <= limits.max_limit))
    # −log likelihood an element: ½ rms² + log spread if the spread is known, log rms if it is only a least one.
    cost = np.log(spread) + np.where(wide, np.maximum(rms**2 - 1, 0) / 2, np.log(np.maximum(rms, 1.0)))
    return Fit(evidence.stages, errors, spread, rms, in_line, np.minimum(cost, np.log(UNCOMPARABLE)))


@dataclass
class Match:
    """A hypothesis, some deviations together, and how it fits the evidence that it has been tried on."""

    deviations: tuple[Deviation, ...]
    fits: list[Fit] = field(default_factory=list)
    tried_on: list[Evidence] = field(default_factory=list)

    @classmethod
    def of(cls, deviations: tuple[Deviation, ...], evidence: Sequence[Evidence], *, measured: bool = False) -> "Match":
        """Return the hypothesis tried on all of the evidence; () is the null hypothesis, that the layer is right."""
        match = cls(deviations)
        for piece in evidence:
            match.try_on(piece, measured=measured)
        return match

    def try_on(self, evidence: Evidence, *, measured: bool = False) -> None:
        """Add one case to the evidence, unless it is there. `measured`: in the noise of the wrong layer itself.

        Choices that nobody specifies (M-3, M-4, V-3) are taken to be those that put the case in line.
        """
        if evidence not in self.tried_on:
            self.tried_on.append(evidence)
            found = fit(self.deviations, evidence, measured=measured)
            if not found.in_line.all():
                others = (
                    fit(self.deviations, other, measured=measured) for other in variants_of(evidence, self.deviations)
                )
                found = next((other for other in others if other.in_line.all()), found)
            self.fits.append(found)

    def within(self, evidence: Sequence[Evidence]) -> "Match":
        """Return this match if it was tried on some of this evidence alone; else the hypothesis, tried on nothing."""
        return self if all(tried in evidence for tried in self.tried_on) else Match(self.deviations)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(deviation.deviation for deviation in self.deviations)

    @property
    def with_stages_first(self) -> list[Fit]:
        """Return the fits, last those of cases that were asked for the output alone, which show no stage before it."""
        return sorted(self.fits, key=lambda fit: len(fit.stages) == 1)

    @property
    def exact(self) -> bool:
        """Whether it predicts values, and not only how far they scatter."""
        return not any(map(is_noisy, self.deviations))

    @property
    def came_true(self) -> bool:
        """Whether something that each noisy deviation predicts, beside its size, came true, and nothing was refuted."""
        noisy = filter(is_noisy, self.deviations)
        return not self._stages("refuted") and all(
            self._predicted_by(each) & self._stages("came_true") for each in noisy
        )

    @property
    def refuted(self) -> bool:
        """Whether something that a noisy deviation predicts was looked for and never seen: only its size is right."""
        true, wrong = self._stages("came_true"), self._stages("refuted")
        predicted = map(self._predicted_by, filter(is_noisy, self.deviations))
        return any(stages & wrong and not stages & true for stages in predicted)

    @property
    def seen_in_values(self) -> bool:
        """Whether each noisy deviation is seen in values somewhere, at its own step, or in most of what follows from
        it: one case with a large mean errs by whatever rounds it."""
        noisy = [each for each in self.deviations if is_noisy(each)]
        alike, unlike = (sum(len(getattr(fit.errors, name)) for fit in self.fits) for name in ("alike", "unlike"))
        seen_after = len(noisy) == 1 and alike > unlike  # of two nobody knows whose values they are
        return seen_after or all(self._predicted_by(each) & self._stages("came_true") for each in noisy)

    def gives_values_of(self, deviation: Deviation) -> bool:
        """Whether one of the deviations predicts values, or gave the very ones of a step of its own somewhere."""
        return not is_noisy(deviation) or bool(self._predicted_by(deviation) & self._stages("in_values"))

    @property
    def predictions(self) -> tuple[str, ...]:
        """Return in a few words each prediction that came true."""
        by_words: dict[str, list[str]] = {}
        for stage, form in noisy_steps(self.deviations).items():
            if stage in self._stages("came_true"):
                by_words.setdefault(prediction_of(form), []).append(stage)
        return tuple(f"{words} ({', '.join(stages)})" for words, stages in by_words.items())

    def _predicted_by(self, deviation: Deviation) -> set[str]:
        """Return the stages that this deviation predicts: dropout is applied last."""
        others = [other for other in self.deviations if has_dropout([other]) and not has_dropout([deviation])]
        return {*noisy_steps([deviation])} - {*noisy_steps(others)}

    def _stages(self, result: Literal["came_true", "refuted", "in_values", "alike"]) -> frozenset[str]:
        return frozenset[str]().union(*(getattr(fit.errors, result) for fit in self.fits))

    # The next four have one entry for every stage of every case, in a row.
    @property
    def costs(self) -> Array:
        return np.concatenate([fit.cost for fit in self.fits])

    @property
    def out(self) -> Bools:
        return np.concatenate([~fit.in_line for fit in self.fits])

    @property
    def far(self) -> Bools:
        """Out of line, however the noise was guessed."""
        return np.concatenate([~fit.in_line & (fit.rms >= GUESSED) for fit in self.fits])

    @property
    def moves(self) -> Bools:
        """Changed by the hypothesis."""
        return np.concatenate([fit.errors.touched for fit in self.fits])

    @property
    def cost(self) -> float:
        """Return the mean over cases and stages: 0 when everything is in line and nothing scatters."""
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
        """Return the matched filter's amplitude: how much of the hypothesis' change was observed; 1 is all of it."""
        return self._along / self._length if self._length else None

    @property
    def significance(self) -> float | None:
        """Return the matched filter's signal-to-noise ratio, in σ, over all elements and cases."""
        return float(self._along / self._length**0.5) if self._length else None

    @property
    def first_stage(self) -> str | None:
        """Return the first stage that the hypothesis itself moves out of line."""
        for fit in self.with_stages_first:
            shows = (fit.errors.moved > constants().rms_limit) | (fit.spread > SCATTERED)
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


def variants_of(evidence: Evidence, deviations: Sequence[Deviation]) -> Iterator[Evidence]:
    """Yield the evidence under each choice of an implementation of which these deviations predict something else."""
    layer = evidence.observation.case.layer
    if deviations:
        yield from evidence.variants(_with_zero_padding)
    if any(deviation.patch.steps.get("masked_softmax") in STORED for deviation in deviations):
        yield from evidence.variants(_with_sums_in_float32)
    if any(deviation.patch.steps.get("masked_softmax") in WITHOUT_LARGEST for deviation in deviations):
        yield from evidence.variants(_with_scores_in_float64)
    unspecified = layer.attention.fully_masked_row == "unspecified"
    if unspecified and leaves_an_empty_row(evidence.observation.case, deviations):
        yield from evidence.variants(_with_empty_rows)


def _with_zero_padding(evidence: Evidence) -> tuple[Evidence, ...]:
    """Set padded positions of x to 0 before anything is computed (M-3), which nobody can see where no stage before the
    first sum over positions is shown. Not where that makes no difference, nor in large layers, which take long."""
    case, shown = evidence.observation.case, {step_of(name) for name in evidence.seen} & {"norm1", "value"}
    if shown or case.valid().all() or is_large(case.layer) or case.layer.embedding:
        return ()
    return (evidence.variant(padding_is_zero=True),)


def _with_sums_in_float32(evidence: Evidence) -> tuple[Evidence, ...]:
    """Round sums with a large number, and weights before they are summed up again, as float32 does (V-3). Not in other
    formats: in narrower ones frameworks add in a wider one as often as not."""
    in_float32 = evidence.dtype.roundoff == FORMATS["float32"].roundoff
    return (evidence.variant(stored_in=np.float32),) if in_float32 else ()


def _with_scores_in_float64(evidence: Evidence) -> tuple[Evidence, ...]:
    """Overflow as float64 does, where scores are stored so: some implementations have a softmax in float32 there."""
    in_float64 = evidence.dtype.roundoff == FORMATS["float64"].roundoff
    return (evidence.variant(stored_in=np.float64),) if in_float64 else ()


def _with_empty_rows(evidence: Evidence) -> tuple[Evidence, ...]:
    """Let a query that a wrong mask leaves no key attend to all alike, or give NaN (M-4)."""
    case = evidence.observation.case
    attention = (case.layer.attention.model_copy(update={"fully_masked_row": row}) for row in ("uniform", "nan"))
    layers = (case.layer.model_copy(update={"attention": each}) for each in attention)
    return tuple(evidence.variant(case=replace(case, layer=layer)) for layer in layers)
