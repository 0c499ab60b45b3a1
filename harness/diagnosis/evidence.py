"""One observation, made ready for trying hypotheses on: what each stage should be, given the stages seen before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoder_conformance.deviations.catalogue import is_noisy
from encoder_conformance.deviations.simulate import Player, continued_with_noise
from encoder_conformance.diagnosis.drawn_once import drawn_once
from encoder_conformance.diagnosis.predictions import Rows, StageSeen, dropping, noisy_steps, outcome, without_dropping
from encoder_conformance.diagnosis.stage_errors import Errors
from encoder_conformance.judge.expected import ExpectedTensor
from encoder_conformance.judge.observation import Array, Observation
from encoder_conformance.oracle.deviant import active_parts, mixes_items
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.stages import step_of

UNCOMPARABLE = 1e12
"""The error, in σ, of a tensor that cannot be compared: enough to be worse than anything that can."""
_NOISE_OF_MORE = 4.0
"""Units of roundoff, at least, in what a hypothesis predicts beyond what a right step would give."""


def _kept_of(tensor: ExpectedTensor, item: int | None) -> npt.NDArray[np.intp]:
    """Where among the positions that a tensor [B, …] keeps those of an item are; all where it is None."""
    if item is None:
        return np.arange(tensor.positions.size)
    return np.flatnonzero(tensor.positions // int(np.prod(tensor.shape[1:])) == item)


class Evidence:
    """What was observed, and what is right, all stages in one row: [n], n the positions kept of all stages together.

    Each stage is predicted from the stages seen before it, where they were kept whole: a stage is out of line where
    its own step is wrong, and not where it inherits. A tensor of another shape is observed as NaN, and predicted so by
    what gives that shape, and by nothing else: a NaN that is computed is no other shape.

    `item`: of that one alone, as what mixes no items can be predicted without the others.
    """

    def __init__(
        self,
        observation: Observation,
        item: int | None = None,
        *,
        padding_is_zero: bool = False,
        held_in: npt.DTypeLike | None = None,
    ) -> None:
        self.observation, case, expected = observation, observation.case, observation.expected
        self._item, self._held_in = item, held_in
        self._made: dict[Callable[[Evidence], tuple[Evidence, ...]], tuple[Evidence, ...]] = {}
        self.case = drawn_once(case, padding_is_zero=padding_is_zero)
        of_item = case.situation.model_copy(update={"items": (item,)})
        self._of_item = self.case if item is None else replace(self.case, situation=of_item)
        self.dtype = observation.dtype
        # A stage that cannot be compared is not gone on from: what is wrong with it would be seen nowhere.
        self._seen = {name: stage for name, stage in observation.whole.items() if observation.values[name] is not None}
        places = {name: _kept_of(expected.tensors[name], item) for name in observation.values}
        kept = {name: expected.tensors[name] for name, at in places.items() if at.size}
        self.stages = tuple(kept)
        self._places = [(name, tensor.shape, tensor.positions[places[name]]) for name, tensor in kept.items()]
        self._sizes = np.array([at.size for _, _, at in self._places])
        self._starts = np.cumsum(self._sizes) - self._sizes
        values = [None if (value := observation.values[name]) is None else value[places[name]] for name in kept]
        self.observed = np.concatenate(
            [np.full(size, np.nan) if value is None else value for value, size in zip(values, self._sizes, strict=True)]
        )
        if self._seen:
            self._whole_right, self._whole_condition = continued_with_noise(self.case, (), self._seen)
            self.right, self._condition = self._row(self._whole_right), self._row(self._whole_condition)
        else:
            self.right = np.concatenate(
                [
                    np.zeros(at.size) if name in self.observation.unlike else kept[name].golden[places[name]]
                    for name, _, at in self._places
                ]
            )
            self._condition = np.concatenate([tensor.condition[places[name]] for name, tensor in kept.items()])
        self._condition = np.nan_to_num(self._condition)
        self._relative = np.repeat(self._relative_noise(), self._sizes)
        self._predicted: dict[tuple[str, ...], Array] = {(): self.right}
        self._measured: tuple[list[Deviation], tuple[Array, Array]] | None = None

    def once(self, make: Callable[["Evidence"], tuple["Evidence", ...]]) -> tuple["Evidence", ...]:
        """What is made of it, which is as dear as it is itself; the second time as it was."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def having(
        self, *, case: Case | None = None, padding_is_zero: bool = False, held_in: npt.DTypeLike | None = None
    ) -> "Evidence":
        """The same observation, of a case that says more, or of an implementation that does these."""
        observation = replace(self.observation, case=case or self.observation.case)
        return Evidence(observation, self._item, padding_is_zero=padding_is_zero, held_in=held_in)

    @property
    def is_comparable(self) -> bool:
        """Whether any stage has the specified shape and dtype."""
        return not self.observation.unlike.keys() >= {*self.stages}

    @property
    def seen(self) -> Mapping[str, Array]:
        """Stages that were seen whole, float64, and can be compared."""
        return self._seen

    @property
    def places(self) -> dict[str, tuple[tuple[int, ...], npt.NDArray[np.int64]]]:
        """Stage → its shape, and the flat positions at which it is compared."""
        return {name: (shape, positions) for name, shape, positions in self._places}

    def sigma(self, stage: str) -> Array:
        """σ of a right step that is given what was seen before it, in the stage's shape."""
        return self._sigma(np.nan_to_num(self._whole_condition[stage]))

    def output_sigma(self) -> Array:
        """σ of the specified output at the positions that are compared, where no stage was seen."""
        return self._sigma(self._condition)

    def relative_noise(self, stage: str) -> float:
        """A right step's noise in units of roundoff of its values: rms over rms, and no less than a few roundings."""
        return float(self._relative_noise()[self.stages.index(stage)])

    def against(self, deviations: Sequence[Deviation], *, measured: bool = False) -> Errors:
        """`measured`: σ is the wrong layer's own. It is slow, and right where a wrong step makes other noise.

        Of what is noisy the size is predicted and not the values (V-4): observed is compared with the others' centre.
        """
        acts = active_parts(self.case, deviations)
        exact = [deviation for deviation in acts if not is_noisy(deviation)]
        if measured and self._seen:
            centre, condition = self._with_noise(exact)
            sigma = self._sigma(np.nan_to_num(condition))
        else:
            centre = self._centre(exact)
            with np.errstate(all="ignore"):
                beyond = self._relative * np.maximum(np.abs(centre) - np.abs(self.right), 0.0)
            sigma = self._sigma(np.fmax(self._condition, beyond))
        if len(exact) == len(acts):
            return self._errors(centre, sigma, np.zeros(len(self.stages)))
        drawn = [self._row(draw) for draw in self._player_for(acts).draws(acts)]
        centre = np.where(np.isfinite(drawn[0]), centre, drawn[0])
        squares = [self._rms(self._apart(draw, centre, sigma)) ** 2 for draw in drawn]
        scatter = np.minimum(np.sqrt(np.mean(squares, axis=0)), UNCOMPARABLE)
        errors = self._errors(centre, sigma, scatter)
        return self._with_predictions(errors, acts, exact, drawn[0], sigma)

    def _with_noise(self, exact: Sequence[Deviation]) -> tuple[Array, Array]:
        """What each stage would be with these, and its condition, [n]. The last is kept: an equation that is found is
        tried by itself, and then beside the others."""
        if self._measured is None or self._measured[0] != [*exact]:
            found = continued_with_noise(self.case, exact, self._seen, held_in=self._held_in)
            self._measured = [*exact], (self._row(found[0]), self._row(found[1]))
        return self._measured[1]

    def _with_predictions(
        self, errors: Errors, acts: Sequence[Deviation], exact: Sequence[Deviation], predicted: Array, sigma: Array
    ) -> Errors:
        """What is noisy predicts more of its own stages than a size. One whose values are so has no scatter there."""
        rms, largest, scatter, moved = (each.copy() for each in (errors.rms, errors.max, errors.scatter, errors.moved))
        found: dict[str, bool] = {}
        noisy = noisy_steps(acts)
        for at, form in ((at, noisy[step]) for at, name in enumerate(self.stages) if (step := step_of(name)) in noisy):
            name = step_of(self.stages[at])
            plain = self._centre(without_dropping(acts) if dropping(form) else exact)
            stage = self._stage_seen(at, plain, predicted, sigma, rows=form == "fast-variance")
            said = outcome(form, stage, constants())
            if said is not None:
                found[name] = said.true and found.get(name, True)
            if said is not None and said.true and said.errors is not None:
                moved[at], scatter[at] = max(moved[at], scatter[at]), 0.0
                rms[at], largest[at] = np.sqrt(np.mean(said.errors**2)), np.abs(said.errors).max()
        came_true = frozenset(name for name, true in found.items() if true)
        errors = replace(errors, rms=rms, max=largest, scatter=scatter, moved=moved)
        return replace(errors, came_true=came_true, refuted=frozenset(found) - came_true)

    def _stage_seen(self, at: int, plain: Array, predicted: Array, sigma: Array, *, rows: bool) -> StageSeen:
        name, shape, positions = self._places[at]
        here = slice(self._starts[at], self._starts[at] + self._sizes[at])
        index = np.stack(np.unravel_index(positions, shape), axis=-1)
        seen = self.observed[here], plain[here], predicted[here], sigma[here]
        return StageSeen(*seen, index, self._norm_rows(name) if rows else None)

    def _norm_rows(self, name: str) -> Rows | None:
        """What a norm was given, and gave, row by row, at the positions that are compared."""
        layer, given = self.case.layer, self._norm_input(name)
        if name not in self._seen or given is None or given.shape != self._seen[name].shape:
            return None
        at = self.case.specified()
        sigma = self._sigma(np.nan_to_num(self._whole_condition[name]))
        shift = self.case.parameters().get(f"{name}.shift", np.zeros(layer.d_model))
        right = self._whole_right[name]
        return Rows(given[at], self._seen[name][at], right[at], sigma[at], shift, layer.norm.epsilon)

    def _norm_input(self, name: str) -> Array | None:
        before = {"pre": {"norm2": "residual1"}, "post": {"norm1": "residual1", "norm2": "residual2"}}
        source = before[self.case.layer.norm.placement].get(name)
        if source is not None:
            return self._seen.get(source)
        return self.case.x() if name == "norm1" and not self.case.layer.is_stack else None

    def predicted(self, deviations: Sequence[Deviation]) -> Array:
        """What each stage would be with these, [n]."""
        return self._row(self._player_for(deviations).play(deviations))

    def distance(self, one: Array, other: Array) -> Array:
        """(one − other) / σ of the right layer, [n]; 0 where either is not finite."""
        apart = self._apart(one, other, self._sigma(self._condition))
        return np.where(np.isfinite(apart), apart, 0.0)

    def _centre(self, exact: Sequence[Deviation]) -> Array:
        key = tuple(deviation.deviation for deviation in exact)
        if key not in self._predicted:
            self._predicted[key] = self.predicted(exact)
        return self._predicted[key]

    @cached_property
    def _player(self) -> Player:
        return Player(self.case, self._seen, self._held_in)

    @cached_property
    def _player_of_item(self) -> Player:
        return Player(self._of_item, self._seen, self._held_in)

    def _player_for(self, deviations: Sequence[Deviation]) -> Player:
        """Of the one item, where it can be predicted by itself."""
        whole = self._item is None or any(map(mixes_items, deviations))
        return self._player if whole else self._player_of_item

    def _errors(self, centre: Array, sigma: Array, scatter: Array) -> Errors:
        off, moved = self._apart(self.observed, centre, sigma), self._apart(centre, self.right, sigma)
        seen = off + moved
        inner = np.isfinite(seen)
        with np.errstate(over="ignore", invalid="ignore"):  # what is out by 2^100 is far along, or nowhere
            along, length = float(np.sum(seen[inner] * moved[inner])), float(np.sum(moved[inner] ** 2))
        return Errors(
            rms=self._rms(off),
            max=np.minimum(np.maximum.reduceat(np.abs(off), self._starts), UNCOMPARABLE),
            moved=self._rms(moved),
            scatter=scatter,
            touched=np.maximum.reduceat(moved != 0.0, self._starts) | (scatter > 0.0),
            along=along,
            length=length,
        )

    def _row(self, values: Mapping[str, Array]) -> Array:
        return np.concatenate([self._at_places(values[name], place) for place, name in enumerate(self.stages)])

    def _at_places(self, value: Array, place: int) -> Array:
        """A stage's values where it is compared. What cannot be as it was observed is finite where that is not."""
        name, shape, at = self._places[place]
        if name in self.observation.unlike:
            return np.full(at.size, np.nan if value.shape == self.observation.unlike[name] else 0.0)
        if value.shape == shape:
            return value.reshape(-1)[at]
        seen = self.observed[self._starts[place] : self._starts[place] + at.size]
        return np.where(np.isfinite(seen), np.nan, 0.0)

    def _sigma(self, condition: Array) -> Array:
        return np.asarray(np.maximum(self.dtype.roundoff * condition, self.dtype.smallest_normal))

    def _relative_noise(self) -> Array:
        """By stage: rms of the condition over rms of what is right. A masked weight has no noise of its own, but the
        weight that an inverted mask gives in its place has."""
        finite = np.where(np.isfinite(self.right), self.right, 0.0)
        with np.errstate(all="ignore"):
            right = np.add.reduceat(finite * finite, self._starts)
            noise = np.add.reduceat(self._condition * self._condition, self._starts)
            return np.fmax(_NOISE_OF_MORE, np.where(right > 0.0, np.sqrt(noise / right), 0.0))

    def _apart(self, one: Array, other: Array, sigma: Array) -> Array:
        """(one − other) / σ; 0 where neither is finite, and infinity where only one of them is."""
        finite, other_finite = np.isfinite(one), np.isfinite(other)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where(finite & other_finite, (one - other) / sigma, 0.0)
        apart[finite != other_finite] = np.inf
        return apart

    def _rms(self, errors: Array) -> Array:
        with np.errstate(over="ignore"):
            mean = np.add.reduceat(errors * errors, self._starts) / self._sizes
        return np.asarray(np.minimum(np.sqrt(mean), UNCOMPARABLE))
