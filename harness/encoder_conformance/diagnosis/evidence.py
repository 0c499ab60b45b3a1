"""Evidence: one observation beside what is right, and beside what any hypothesis predicts of it, stage by stage."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoder_conformance.diagnosis.in_sigma import UNCOMPARABLE, StageErrors, in_sigma_if_finite, rms
from encoder_conformance.diagnosis.noisy_predictions import (
    DROPOUTS,
    NoisyStage,
    NormRows,
    errs_alike,
    has_dropout,
    noisy_steps,
    overflows_in_part,
    prediction_result,
)
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.simulate import Player, continued_with_noise, simulate_with_noise
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.oracle.deviant import active_parts, mixes_items
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.plan import plan
from encoder_conformance.spec.portable import Floats
from encoder_conformance.spec.stages import step_of

_NOISE_OF_MORE = 4.0
"""Units of roundoff, at least, in what a hypothesis predicts beyond what a right step would give."""
_DRAWS = 4
"""Plays behind a scatter, of which the size alone is asked, over all elements of a stage."""


@dataclass(frozen=True)
class SimulatedCase(Case):
    """A case to simulate again and again. Its parameters are drawn once: that takes longer than a small layer does."""

    @classmethod
    def of(cls, case: Case, *, padding_is_zero: bool = False) -> "SimulatedCase":
        """Return the same case. `padding_is_zero`: with x 0 at padding, as an implementation may set it (M-3)."""
        simulated = cls(**{each.name: getattr(case, each.name) for each in fields(case)})
        if not padding_is_zero:
            return simulated
        x = np.where(case.valid()[:, :, None], case.x(), 0.0)
        return replace(simulated, held_x=CaseParameters.of({"x": x}))

    @cached_property
    def _parameters(self) -> Mapping[str, Floats]:
        return super().parameters()

    def parameters(self) -> Mapping[str, Floats]:
        return self._parameters


class Evidence:
    """One observation, and what is right, with all stages in one row [n]: n are the compared positions of all stages.

    Each stage is predicted from the observed stages before it, where they were kept whole: a stage is out of line where
    its step is wrong, and not where it inherits. A tensor of another shape is observed as NaN, and predicted so by
    what gives that shape, and by nothing else: a NaN that is computed is no other shape.

    `case` is simulated; `stages` are the names in order of computation; `seen` are the comparable stages that were
    observed whole, in float64; `places` has the shape of each stage, and the flat positions at which it is compared;
    `observed` and `right` are rows [n].
    """

    def __init__(
        self,
        observation: Observation,
        item: int | None = None,
        *,
        padding_is_zero: bool = False,
        stored_in: npt.DTypeLike | None = None,
    ) -> None:
        """`item`: the only one looked at, as what mixes no items can be predicted without the others.
        `padding_is_zero` and `stored_in`: what the implementation does, as `variant` says."""
        self.observation, self.dtype = observation, observation.dtype
        self._item, self._stored_in = item, stored_in
        self.case = SimulatedCase.of(observation.case, padding_is_zero=padding_is_zero)
        # A stage that cannot be compared is not gone on from: what is wrong with it would be seen nowhere.
        self.seen = {name: whole for name, whole in observation.whole.items() if observation.values[name] is not None}
        tensors = observation.expected.tensors
        kept = {name: at for name in observation.values if (at := _positions_of(tensors[name], item)).size}
        self.stages = tuple(kept)
        self.places = {name: (tensors[name].shape, tensors[name].positions[at]) for name, at in kept.items()}
        self._sizes = np.array([at.size for at in kept.values()])
        self._starts = np.cumsum(self._sizes) - self._sizes
        values = observation.values
        rows = [np.full(at.size, np.nan) if (value := values[n]) is None else value[at] for n, at in kept.items()]
        self.observed = np.concatenate(rows)
        self._players: dict[bool, Player] = {}
        if self.seen and self.stages != ("output",):
            self.right, condition = map(self._row, self._right_with_noise)
        else:  # nothing that was seen goes on into another stage: σ is the golden's
            rows = [np.zeros(at.size) if n in observation.unlike else tensors[n].golden[at] for n, at in kept.items()]
            self.right = self.predicted(()) if self.seen else np.concatenate(rows)
            condition = np.concatenate([tensors[name].condition[at] for name, at in kept.items()])
        self._condition = np.nan_to_num(condition)
        self._relative = self._relative_noise()
        self._predicted: dict[tuple[str, ...], Array] = {(): self.right}
        self._with_last_noise: tuple[list[Deviation], tuple[Array, Array]] | None = None
        self._variants: dict[Callable[[Evidence], tuple[Evidence, ...]], tuple[Evidence, ...]] = {}

    def variants(self, make: Callable[["Evidence"], tuple["Evidence", ...]]) -> tuple["Evidence", ...]:
        """Return what `make` makes of this evidence; it is made once, since each takes as long as the evidence did."""
        if make not in self._variants:
            self._variants[make] = make(self)
        return self._variants[make]

    def variant(
        self, *, case: Case | None = None, padding_is_zero: bool = False, stored_in: npt.DTypeLike | None = None
    ) -> "Evidence":
        """Return evidence of the same observation with another `case`, or of an implementation that sets x to 0 at
        padding, or that adds in the format `stored_in`."""
        observation = replace(self.observation, case=case or self.observation.case)
        return Evidence(observation, self._item, padding_is_zero=padding_is_zero, stored_in=stored_in)

    @property
    def is_comparable(self) -> bool:
        """Whether any stage has the specified shape and dtype."""
        return not self.observation.unlike.keys() >= {*self.stages}

    def sigma(self, stage: str) -> Array:
        """Return σ of a right step that is given the stages observed before it, in the stage's shape."""
        return self.dtype.sigma(np.nan_to_num(self._right_with_noise[1][stage]))

    def right_stage(self, stage: str) -> Array:
        """Return this stage of a right layer that is given what was seen, in its shape."""
        return self._right_with_noise[0][stage]

    @cached_property
    def _right_with_noise(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Every stage of a right layer that is given what was seen, and its condition."""
        return continued_with_noise(self.case, (), self.seen)

    def output_sigma(self) -> Array:
        """Return σ of the specified output at the positions that are compared, [n], where no stage was seen."""
        return self.dtype.sigma(self._condition)

    def relative_noise(self, stage: str) -> float:
        """Return a right step's noise in roundoffs of its values: rms over rms, and no less than a few roundings."""
        return float(self._relative[self.stages.index(stage)])

    def errors_of(self, deviations: Sequence[Deviation], *, measured: bool = False) -> StageErrors:
        """Return how far a layer with these deviations is from what was observed, stage by stage, in σ.

        `measured`: σ is that of the wrong layer. It is slow, and right where a wrong step makes other noise. Of noisy
        deviations the size is predicted and not the values (V-4): observed is compared with the others' centre.
        """
        acts = active_parts(self.case, deviations)
        exact = [deviation for deviation in acts if not is_noisy(deviation)]
        if measured:
            centre, condition = self._with_noise(exact)
            sigma = self.dtype.sigma(np.nan_to_num(condition))
        else:
            centre = self._centre(exact)
            with np.errstate(all="ignore"):
                beyond = np.repeat(self._relative, self._sizes) * np.maximum(np.abs(centre) - np.abs(self.right), 0.0)
            sigma = self.dtype.sigma(np.fmax(self._condition, beyond))
        if len(exact) == len(acts):
            return self._errors(centre, sigma, *np.zeros((2, len(self.stages))))
        drawn = [self._row(draw) for draw in self._player_for(acts).draws(acts, _DRAWS)]
        centre = np.where(np.isfinite(drawn[0]), centre, drawn[0])
        squares = [self._rms(in_sigma_if_finite(draw, centre, sigma)) ** 2 for draw in drawn]
        scatter, least = (np.minimum(np.sqrt(of(squares, axis=0)), UNCOMPARABLE) for of in (np.mean, np.min))
        errors = self._errors(centre, sigma, scatter, least)
        return self._with_predictions(errors, acts, exact, drawn[0], sigma)

    def _with_noise(self, exact: Sequence[Deviation]) -> tuple[Array, Array]:
        """Return what each stage would be with these deviations, and its condition, [n] each. The last are kept: an
        equation that is found is tried by itself, and then beside the others."""
        if self._with_last_noise is None or self._with_last_noise[0] != [*exact]:
            if self.seen:
                found = continued_with_noise(self.case, exact, self.seen, stored_in=self._stored_in)
            else:  # of a large layer: what its verdict would be made with
                found = simulate_with_noise(self.case, exact, self._stored_in)
            self._with_last_noise = [*exact], (self._row(found[0]), self._row(found[1]))
        return self._with_last_noise[1]

    def _with_predictions(
        self, errors: StageErrors, acts: Sequence[Deviation], exact: Sequence[Deviation], predicted: Array, sigma: Array
    ) -> StageErrors:
        """Test what noisy deviations predict beside a size, values and σ [n]; where it came true, nothing scatters."""
        means, largest, scatter, moved = map(np.copy, (errors.rms, errors.max, errors.scatter, errors.moved))
        found, in_values = dict[str, bool](), set[str]()
        noisy = noisy_steps(acts)
        for at, form in ((at, noisy[step]) for at, name in enumerate(self.stages) if (step := step_of(name)) in noisy):
            plain = self._centre([each for each in acts if not has_dropout([each])] if form in DROPOUTS else exact)
            stage = self._noisy_stage(at, plain, predicted, sigma, rows=form == "fast-variance")
            result = prediction_result(form, stage)
            if result is not None:
                name = step_of(self.stages[at])
                found[name] = result.true and found.get(name, True)
            if result is not None and result.true and result.errors is not None:
                in_values.add(step_of(self.stages[at]))
                moved[at], scatter[at] = max(moved[at], scatter[at]), 0.0
                means[at], largest[at] = rms(result.errors), np.abs(result.errors).max()
        if len(noisy) == 1 and (overflows := [*self._overflowing_alike(self._centre(exact), predicted, noisy)]):
            [name] = noisy
            found[name] = all(overflows) and found.get(name, True)
        came_true = frozenset(name for name, true in found.items() if true)
        after = dict(self._erring_alike(self._centre(exact), predicted, errors.scatter, noisy))
        alike = frozenset(step for step, same in after.items() if same)
        errors = replace(errors, rms=means, max=largest, scatter=scatter, moved=moved)
        refuted = frozenset(found) - came_true
        errors = replace(errors, came_true=came_true, refuted=refuted, in_values=came_true & in_values)
        return replace(errors, alike=alike, unlike=frozenset(after) - alike)

    def _erring_alike(
        self, centre: Array, predicted: Array, scatter: Array, noisy: Mapping[str, str]
    ) -> Iterator[tuple[str, bool]]:
        """Yield the stages after the noisy steps, where these scatter, and whether they err as predicted, value by
        value: all are [n], [stages]."""
        for at in np.flatnonzero(scatter > constants().max_limit):
            name, here = self.stages[at], slice(self._starts[at], self._starts[at] + self._sizes[at])
            if step_of(name) not in noisy:
                yield step_of(name), errs_alike(self.observed[here], predicted[here], centre[here])

    def _overflowing_alike(self, centre: Array, predicted: Array, noisy: Mapping[str, str]) -> Iterator[bool]:
        """Yield of each stage after the noisy steps that overflows in part whether the same of its values do, [n]."""
        for at, name in enumerate(self.stages):
            here = slice(self._starts[at], self._starts[at] + self._sizes[at])
            if step_of(name) not in noisy and overflows_in_part(predicted[here], centre[here]):
                yield np.array_equal(np.isfinite(self.observed[here]), np.isfinite(predicted[here]))

    def _noisy_stage(self, at: int, plain: Array, predicted: Array, sigma: Array, *, rows: bool) -> NoisyStage:
        """Return one stage, [P] of these rows [n]; with the rows of a norm if `rows`."""
        name = self.stages[at]
        shape, positions = self.places[name]
        here = slice(self._starts[at], self._starts[at] + self._sizes[at])
        index = np.stack(np.unravel_index(positions, shape), axis=-1)
        values = self.observed[here], plain[here], predicted[here], sigma[here]
        return NoisyStage(*values, index, self._norm_rows(name) if rows else None)

    def _norm_rows(self, name: str) -> NormRows | None:
        """Return what a norm was given, and gave, row by row, at the positions that are compared."""
        layer, given = self.case.layer, self._norm_input(name)
        if name not in self.seen or given is None or given.shape != self.seen[name].shape:
            return None
        at = self.case.specified()
        shift = self.case.parameters().get(f"{name}.shift", np.zeros(layer.d_model))
        right = self.right_stage(name)
        return NormRows(given[at], self.seen[name][at], right[at], self.sigma(name)[at], shift, layer.norm.epsilon)

    def _norm_input(self, name: str) -> Array | None:
        steps = () if self.case.layer.is_stack else plan(self.case.layer)
        [source] = next((step.reads for step in steps if step.makes == name and step.form == "norm"), ("",))
        return self.case.x() if source == "x" else self.seen.get(source)

    def predicted(self, deviations: Sequence[Deviation]) -> Array:
        """Return what each stage would be with these deviations, [n]."""
        return self._row(self._player_for(deviations).play(deviations))

    def distance(self, one: Array, other: Array) -> Array:
        """Return (one − other) / σ of the right layer, all [n]; 0 where either is not finite."""
        found = in_sigma_if_finite(one, other, self.output_sigma())
        return np.where(np.isfinite(found), found, 0.0)

    def _centre(self, exact: Sequence[Deviation]) -> Array:
        key = tuple(deviation.deviation for deviation in exact)
        if key not in self._predicted:
            self._predicted[key] = self.predicted(exact)
        return self._predicted[key]

    def _player_for(self, deviations: Sequence[Deviation]) -> Player:
        """Return the player of the one item, where it can be predicted by itself, or of all items."""
        whole = self._item is None or any(map(mixes_items, deviations))
        if whole not in self._players:
            of_item = self.case.situation.model_copy(update={"items": (self._item,)})
            case = self.case if whole else replace(self.case, situation=of_item)
            self._players[whole] = Player(case, self.seen, self._stored_in)
        return self._players[whole]

    def _errors(self, centre: Array, sigma: Array, scatter: Array, least: Array) -> StageErrors:
        """Return the errors where a stage is predicted to be at the centre, [n], with σ [n]; scatter and least are
        [stages]."""
        off, moved = in_sigma_if_finite(self.observed, centre, sigma), in_sigma_if_finite(centre, self.right, sigma)
        seen = off + moved
        inner = np.isfinite(seen)
        with np.errstate(over="ignore", invalid="ignore"):  # what is out by 2^100 is far along, or nowhere
            along, length = float(np.sum(seen[inner] * moved[inner])), float(np.sum(moved[inner] ** 2))
        return StageErrors(
            rms=self._rms(off),
            max=np.minimum(np.maximum.reduceat(np.abs(off), self._starts), UNCOMPARABLE),
            moved=self._rms(moved),
            scatter=scatter,
            least=least,
            touched=np.maximum.reduceat(moved != 0.0, self._starts) | (scatter > 0.0),
            along=along,
            length=length,
        )

    def _row(self, values: Mapping[str, Array]) -> Array:
        return np.concatenate([self._at_positions(values[name], number) for number, name in enumerate(self.stages)])

    def _at_positions(self, value: Array, number: int) -> Array:
        """Return what is compared of a stage, [P]. One that cannot be as observed is finite where that is not."""
        name = self.stages[number]
        shape, at = self.places[name]
        if name in self.observation.unlike:
            return np.full(at.size, np.nan if value.shape == self.observation.unlike[name] else 0.0)
        if value.shape == shape:
            return value.reshape(-1)[at]
        seen = self.observed[self._starts[number] : self._starts[number] + at.size]
        return np.where(np.isfinite(seen), np.nan, 0.0)

    def _relative_noise(self) -> Array:
        """Return the rms of the condition over the rms of what is right, by stage. A masked weight has no noise, but
        the weight that an inverted mask gives in its place has."""
        finite = np.where(np.isfinite(self.right), self.right, 0.0)
        with np.errstate(all="ignore"):
            right = np.add.reduceat(finite * finite, self._starts)
            noise = np.add.reduceat(self._condition * self._condition, self._starts)
            return np.fmax(_NOISE_OF_MORE, np.where(right > 0.0, np.sqrt(noise / right), 0.0))

    def _rms(self, errors: Array) -> Array:
        """Return the rms by stage, [n] → [stages]."""
        with np.errstate(over="ignore"):
            mean = np.add.reduceat(errors * errors, self._starts) / self._sizes
        return np.asarray(np.minimum(np.sqrt(mean), UNCOMPARABLE))


def _positions_of(tensor: ExpectedTensor, item: int | None) -> npt.NDArray[np.intp]:
    """Return where among the positions that a tensor [B, …] keeps those of an item are; all where it is None."""
    if item is None:
        return np.arange(tensor.positions.size)
    return np.flatnonzero(tensor.positions // int(np.prod(tensor.shape[1:])) == item)
