"""Judges dropout, by probes that are asked in training and once in eval (clauses A-1 to A-3, rules Q-1 to Q-3)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np

from encoder_conformance.checks.training.probe import Probe, unfit
from encoder_conformance.checks.training.reading import Kept, Reading, Unreadable, read
from encoder_conformance.checks.training.statistics import Z_LIMIT, dependence, rate
from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import Judgement, Verdict
from encoder_conformance.oracle.deviant import changes, patched_layer
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.parameters import Parameter, parameters_of
from encoder_conformance.spec.situation import Mode
from encoder_conformance.task import Task
from encoder_conformance.wire.messages import AsGiven, Build, Run
from encoder_conformance.wire.streamed import Streamed, parts_of
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

AXES = {
    "attention_weights": ("items", "heads", "queries", "keys"),
    "attention_output": ("items", "positions", "features"),
    "ffn_activation": ("items", "positions", "hidden units"),
    "ffn_output": ("items", "positions", "features"),
}
_ONE_AT_A_TIME = threading.Lock()
"""What two workers answer is read and judged in turns: of a large layer it takes tens of megabytes."""
Rates = dict[str, float]
"""Placement → the probability that an element of it is dropped in training."""
SCALE_ROUNDOFFS = 4096
"""By how many units of roundoff the scale of what is kept may be off, relatively."""


def put_dropout(session: Session, task: Task) -> Judgement:
    """Ask every probe that shows a part of the hidden units, the first one with two seeds; and the first in eval. Each
    answer is read when it comes, and let go; what was read is judged at once, and let go too."""
    if problem := unfit(task.case.layer):
        unfitting = Verdict(outcome=Outcome.ERROR, message=problem)
        return lambda: unfitting
    first = Probe(task.case.layer)
    probes = [first, first, *(Probe(task.case.layer, block) for block in range(1, first.blocks))]
    in_training: list[tuple[Mode, int, Probe]] = [("train", seed, probe) for seed, probe in enumerate(probes, start=1)]
    readings: list[Reading] = []
    for mode, seed, probe in [*in_training, ("eval", 0, first)]:
        found = _asked(session, task, probe, mode, seed)
        if isinstance(found, Verdict):
            failed = found
            return lambda: failed
        readings.append(found)
    *asked, resting = readings
    draws = _Draws(asked)
    with _ONE_AT_A_TIME:
        verdict = _judged(task, lambda rates: [*_in_training(task, draws, rates), *_at_rest(task, resting)])
    return lambda: verdict


def _judged(task: Task, problems_at: Callable[[Rates], list[str]]) -> Verdict:
    """`problems_at` says what is wrong with what was read, were these the layer's rates: those of the specification, or
    of what is declared or known of it."""
    problems, declared = problems_at(task.case.layer.dropout.model_dump()), task.deviations
    if declared:
        met = not problems_at(_rates(task, declared))
        ids = " and ".join(deviation.deviation for deviation in declared)
        if met and problems:
            shown = tuple(deviation.deviation for deviation in declared)
            return Verdict(outcome=Outcome.DEVIATES, message=f"as declared: {ids}", deviations=shown)
        if not problems:
            return Verdict(outcome=Outcome.STALE, message=f"declares {ids}, and meets the specification without it")
    if not problems:
        return Verdict(outcome=Outcome.PASS)
    named = next((known for known in _known(task) if not problems_at(_rates(task, known))), ())
    causes = " and ".join(f"{known.deviation} ({known.sentence.removesuffix('.')})" for known in named)
    return Verdict(outcome=Outcome.FAIL, message="; ".join(problems) + (f": this is {causes}" if causes else ""))


def _known(task: Task) -> Iterator[tuple[Deviation, ...]]:
    """The deviations that change what this layer drops in training: each, and then several together."""
    each = [known for known in catalogue().values() if known.patch.in_training and changes(task.case, known)]
    for count in range(1, len(AXES)):
        yield from combinations(each, count)


def _rates(task: Task, deviations: Iterable[Deviation]) -> Rates:
    layer = task.case.layer
    for deviation in deviations:
        layer = patched_layer(layer, deviation)
    rates: Rates = layer.dropout.model_dump()
    return rates


def _asked(session: Session, task: Task, probe: Probe, mode: Mode, seed: int) -> Reading | Verdict:
    dtype = task.format.numpy
    given = AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False)
    run = Run(check="output", mode=mode, given=given, seed=seed)
    key = "dropout", task.dtype, task.case.layer.layer, probe.block
    x = np.ascontiguousarray(probe.x.astype(dtype))
    build = Build(layer=probe.layer, dtype=task.dtype)
    answer = session.observe_made(key, build, _parameters(probe, dtype), run, {"x": x})
    if isinstance(answer, Failure):
        return Verdict(outcome=answer.outcome, message=f"mode {mode}: {answer.message}")
    if set(answer) != {"output"}:
        return Verdict(outcome=Outcome.ERROR, message=f"mode {mode}: answered {sorted(answer)} instead of output")
    output = answer["output"]
    if output.shape != x.shape or output.dtype != dtype:
        was, due = f"{output.dtype} {list(output.shape)}", f"{task.dtype} {list(x.shape)}"
        return Verdict(outcome=Outcome.FAIL, stage="output", message=f"mode {mode}: output: {was} instead of {due}")
    try:
        with _ONE_AT_A_TIME:
            return read(probe, output.astype(np.float64))
    except Unreadable as problem:
        return Verdict(outcome=Outcome.FAIL, message=f"mode {mode}: dropout cannot be read off: {problem}")


def _parameters(probe: Probe, dtype: np.dtype[Any]) -> dict[str, Streamed]:
    """Each is made while it is written, and again while it is compared with what came back: none is held."""
    return {
        parameter.name: Streamed(dtype, parameter.shape(probe.layer), partial(_made, probe, parameter, dtype))
        for parameter in parameters_of(probe.layer)
    }


def _made(probe: Probe, parameter: Parameter, dtype: np.dtype[Any]) -> Iterator[np.ndarray[Any, Any]]:
    for part in parts_of(probe.parameter(parameter)):
        yield part.astype(dtype, copy=False)


class _Draws:
    """What was asked in training, and what its masks have to do with each other. That is so at any rate, and is found
    out once, when it is first asked for: the rates are those of the specification, and then of each known deviation."""

    def __init__(self, asked: list[Reading]) -> None:
        self.asked = asked
        self.tied = cache(self._tied)
        self.same_for_two_seeds = cache(self._same_for_two_seeds)
        self.together = cache(self._together)

    def masks(self, placement: str) -> list[Kept]:
        return [reading.kept[placement] for reading in self.asked]

    def _tied(self, placement: str) -> list[str]:
        """The axes along which neighbours have to do with each other."""
        return [axis for at, axis in enumerate(AXES[placement]) if _neighbours_tied(self.masks(placement), at)]

    def _same_for_two_seeds(self, placement: str) -> float:
        first, second, *_ = self.masks(placement)
        return dependence([(first, second)])

    def _together(self, one: str, other: str) -> float:
        flat = [(reading.kept[one].reshape(-1), reading.kept[other].reshape(-1)) for reading in self.asked]
        return dependence([(a[: b.size], b[: a.size]) for a, b in flat])


def _in_training(task: Task, draws: _Draws, rates: Rates) -> Iterator[str]:
    whole = []
    for placement, due in rates.items():
        if tied := draws.tied(placement):
            yield f"dropout of {placement}: one draw for several {' and '.join(tied)}"
        else:
            whole.append(placement)
            if (found := rate(draws.masks(placement), due)).wrong:
                yield f"dropout of {placement}: rate {found.seen:.3g} instead of {due:g} (z = {found.z:.3g})"
        if abs(z := draws.same_for_two_seeds(placement)) > Z_LIMIT:
            yield f"dropout of {placement}: two seeds drop the same elements (z = {z:.3g})"
        yield from _wrong_scale(task, placement, draws.asked, 1 / (1 - due), "")
        if _is_far(draws.asked, placement, 1 / (1 - due)):
            return  # what one placement makes so large is taken for what another let through
    for one, other in combinations(whole, 2):
        if abs(z := draws.together(one, other)) > Z_LIMIT:
            yield f"dropout of {one} and of {other} are drawn together (z = {z:.3g})"


def _neighbours_tied(masks: list[Kept], axis: int) -> bool:
    turned = [np.moveaxis(mask, axis, 0) for mask in masks]
    return abs(dependence([(mask[1:], mask[:-1]) for mask in turned])) > Z_LIMIT


def _is_far(asked: list[Reading], placement: str, due: float) -> bool:
    scales = np.concatenate([reading.scales[placement] for reading in asked]) / due
    return bool(scales.size and (scales.max() > 2 or scales.min() < 0.5))


def _at_rest(task: Task, reading: Reading) -> Iterator[str]:
    for placement, mask in reading.kept.items():
        seen = mask[~np.isnan(mask)]
        if dropped := int((seen == 0).sum()):
            yield f"mode eval: dropout of {placement} is on: {dropped} of {seen.size} elements are dropped"
        yield from _wrong_scale(task, placement, [reading], 1.0, "mode eval: ")


def _wrong_scale(task: Task, placement: str, asked: list[Reading], due: float, mode: str) -> Iterator[str]:
    scales = np.concatenate([reading.scales[placement] for reading in asked])
    error = np.abs(scales / due - 1)
    if scales.size and error.max() > SCALE_ROUNDOFFS * task.format.roundoff:
        worst = scales[error.argmax()]
        yield f"{mode}dropout of {placement}: what is kept is multiplied by {worst:.7g} instead of {due:.7g}"
