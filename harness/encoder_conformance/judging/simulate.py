"""Simulates implementations with deviations: the oracle plays them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.deviant import Deviant, deviant
from encoder_conformance.oracle.encoder import forward_on
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.recall import Recall
from encoder_conformance.oracle.tape import ForwardTape, Node, RecallingTape, Steps
from encoder_conformance.platform.recent import Recent
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.spec.stages import step_of

_DRAWS = 8
_NOISE_RUNS = 24
_ROOM = 4_000_000
"""Bytes of what the steps of one case gave: of a small one, what is right and some forty single mistakes."""
_SMALL = 2_000_000
"""Parameters of a layer that is held in float64 for as long as it is played."""


def simulate(case: Case, deviations: Sequence[Deviation], draw: int = 0) -> dict[str, Array]:
    """Every stage of the case as the wrong implementation computes it, in float64; `draw` numbers the random draws."""
    return deviant(case, deviations).stages(Arithmetic(np.float64, draw))


class Player:
    """Plays one case again and again, each stage computed from the stages that were `seen` before it, whole. A step
    with the same operands is not computed anew."""

    def __init__(self, case: Case, seen: Mapping[str, Array], stored_in: npt.DTypeLike | None = None) -> None:
        """`stored_in`: the format of the implementation, where a large term swallows the other of a sum."""
        self.case, self.seen, self._stored_in = case, seen, stored_in
        self._given, self._recall = given(case), None
        if case.situation.items is None and parameter_count(case.layer) < _SMALL:  # else arrays are new each time
            self._given = replace(self._given, parameters=dict(self._given.parameters))
            self._recall = Recall(_ROOM)
        self._played: dict[tuple[str, ...], Steps] = {}

    def play(self, deviations: Sequence[Deviation], draw: int = 0) -> dict[str, Array]:
        """Every stage as the wrong implementation computes it; `draw` numbers the random draws.

        Right forms, and single deviations that draw nothing at random, are kept for later plays.
        """
        arithmetic, wrong = Arithmetic(np.float64, draw, self._stored_in), deviant(self.case, deviations, self._given)
        if self._recall is None:
            return _stages(wrong, ForwardTape(arithmetic), self.seen)
        keeps = len(deviations) <= 1 and not any(map(is_noisy, deviations))
        names = tuple(each.deviation for each in deviations)
        earlier = [play for each in ((), *((name,) for name in names)) if (play := self._played.get(each))]
        tape = RecallingTape(arithmetic, recall=self._recall, keeps=keeps, earlier=earlier)
        stages = _stages(wrong, tape, self.seen)
        if keeps and tape.played and self._recall.has_room and not self.case.layer.is_stack:
            self._played[names] = tape.played
        return stages

    def draws(self, deviations: Sequence[Deviation], most: int = _DRAWS) -> list[dict[str, Array]]:
        """So many plays with random draws of their own; one play where nothing is drawn."""
        found = [self.play(deviations)]
        for number in range(1, most):
            drawn = self.play(deviations, number)
            if all(np.array_equal(drawn[name], found[0][name], equal_nan=True) for name in drawn):
                break
            found.append(drawn)
        return found


class _Sampled(Rounded):
    """Noise from NumPy's generator: where no verdict hangs on it, it need not be portable, and takes half the time."""

    def __init__(self, roundoff: float, run: int, stored_in: npt.DTypeLike | None = None) -> None:
        super().__init__(roundoff, run, stored_in)
        self._random = np.random.default_rng(run)

    def _disturbance(self, shape: tuple[int, ...]) -> Array:
        return self._random.uniform(-1.0, 1.0, shape)


def continued_with_noise(
    case: Case,
    deviations: Sequence[Deviation],
    seen: Mapping[str, Array],
    noise: type[Rounded] = _Sampled,
    stored_in: npt.DTypeLike | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Every stage as the wrong implementation computes it from what was seen, and its condition, made as
    `encoder_conformance.oracle.condition` makes a right layer's.

    The noise of a step goes on into the next, around what was seen: a framework may fuse two steps and never round
    what it shows between them.
    """
    wrong = deviant(case, deviations)
    centre = _stages(wrong, ForwardTape(Arithmetic(np.float64, stored_in=stored_in)), seen)
    with np.errstate(all="ignore"):
        spread = Spread(_finite(centre))
        for run in range(_NOISE_RUNS):
            disturbed = ForwardTape(noise(SAMPLE_ROUNDOFF, run, stored_in))
            spread.add(_finite(_stages(wrong, disturbed, seen, centre)))
        return centre, spread.conditions()


def _finite(stages: Mapping[str, Array]) -> dict[str, Array]:
    """NaN and infinity as 0: they have no noise, and leave that of the features beside them as it is."""
    return {name: np.where(np.isfinite(value), value, 0.0) for name, value in stages.items()}


_KEPT = 64
"""Wrong layers whose noise is kept for the other checks, formats and implementations that are judged by them."""
_with_noise = Recent[tuple[dict[str, Array], dict[str, Array]]](_KEPT)


def simulate_with_noise(
    case: Case, deviations: Sequence[Deviation], stored_in: npt.DTypeLike | None = None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Every stage of the wrong layer and its condition, with nothing seen of it: what verdicts are made with."""
    key = *_key(case, deviations), str(stored_in)
    return _with_noise.get(key, lambda: continued_with_noise(case, deviations, {}, Rounded, stored_in))


def _key(case: Case, deviations: Sequence[Deviation]) -> tuple[object, ...]:
    return case.id, case.numbers_from, *(deviation.deviation for deviation in deviations)


_scatter = Recent[dict[str, Array]](_KEPT)


def scatter(case: Case, deviations: Sequence[Deviation], predicted: Sequence[Deviation]) -> dict[str, Array]:
    """The rms distance, over draws, of each value of the wrong layer from that under `predicted` deviations alone."""
    return _scatter.get(_key(case, deviations), lambda: _scattered(case, deviations, predicted))


def _scattered(case: Case, deviations: Sequence[Deviation], predicted: Sequence[Deviation]) -> dict[str, Array]:
    centre, drawn = simulate(case, predicted), Player(case, {}).draws(deviations)
    with np.errstate(all="ignore"):
        return {
            name: np.sqrt(np.mean([(draw[name] - centre[name]) ** 2 for draw in drawn], axis=0))
            for name in centre
            if centre[name].shape == drawn[0][name].shape
        }


def _stages(
    wrong: Deviant, tape: ForwardTape, seen: Mapping[str, Array], centre: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Each step is given what was seen in place of what was computed, plus how far that is from `centre`, if given."""

    def onward(name: str, stage: Node) -> Node:
        if name not in seen or seen[name].shape != stage.value.shape:
            return stage
        if centre is None:
            return Node(seen[name])
        noise = stage.value - centre[name]
        return Node(seen[name] + np.where(np.isfinite(noise), noise, 0.0))  # NaN where NaN is right, and was not seen

    with np.errstate(all="ignore"):  # a wrong form may divide by zero, and says so by NaN
        computed = forward_on(tape, wrong.layer, wrong.given, onward)
    return computed | _not_predicted(wrong, computed, seen)


def _not_predicted(wrong: Deviant, computed: Mapping[str, Array], seen: Mapping[str, Array]) -> dict[str, Array]:
    """The weights, and what a layer of a stack gives, with what was seen of queries that a wrong mask leaves no key:
    nobody specifies those (M-4)."""
    mask = wrong.given.of_scores(wrong.layer, wrong.given.mask, True)
    if mask is None or wrong.layer.attention.fully_masked_row != "unspecified":
        return {}
    has_key = np.any(mask, axis=-1, keepdims=True)  # [B or 1, H or 1, S or 1, 1]
    predicted = {"attention_weights": has_key, "layer_k": has_key.all(axis=1)}
    return {
        name: np.where(predicted[step_of(name)], stage, seen[name])
        for name, stage in computed.items()
        if step_of(name) in predicted and name in seen and seen[name].shape == stage.shape
    }
