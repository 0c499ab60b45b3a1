"""Judges dropout by probe layers, run in mode train and once in mode eval (clauses A-1 to A-3, rules Q-1 to Q-3)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.training import turn_of
from encoder_conformance.judging.checks.training.embedded import EmbeddedProbe
from encoder_conformance.judging.checks.training.probe import Probe, unfit
from encoder_conformance.judging.checks.training.reading import NoReading, Reading, read
from encoder_conformance.judging.checks.training.statistics import DROPPED, HIDDEN, Z_LIMIT, Masks, dependence, rate
from encoder_conformance.judging.verdict import Judgement, Verdict
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes, patched_layer
from encoder_conformance.protocol.messages import AsGiven, Build, Run
from encoder_conformance.protocol.streamed import Streamed, parts_of
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Dropout
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.parameters import Parameter, parameters_of
from encoder_conformance.spec.situation import Mode
from encoder_conformance.spec.stages import SHAPES
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_AXIS = {"B": "items", "H": "heads", "S": "positions", "T": "keys", "D": "features", "F": "hidden units"}
AXES = {
    stage: tuple("queries" if axis == "S" and "T" in axes else _AXIS[axis] for axis in axes.split())
    for stage, axes in ((stage, SHAPES[stage]) for stage in Dropout.model_fields)
}
"""Stage that dropout follows → the names of its axes."""
AnyProbe = Probe | EmbeddedProbe
_ONE_AT_A_TIME = threading.Lock()
"""Workers' answers are read and judged one at a time: those of a large layer take tens of megabytes."""
Rates = dict[str, float]
"""Placement → the probability that an element of it is dropped in training."""
SCALE_ROUNDOFFS = 4096
"""The largest relative error of the scale of kept elements, in units of roundoff."""


def put_dropout(session: Session, task: Task) -> Judgement:
    """Run the probe of each block of hidden units in mode train, the first one with two seeds, and once in mode eval.

    Each answer is read when it comes and then freed. The readings are judged at once and freed too. Of large layers,
    whose readings are tens of megabytes, one implementation's are in memory at a time.
    """
    if task.case.layer.embedding is None and (problem := unfit(task.case.layer)):
        error = Verdict(outcome=Outcome.ERROR, message=problem)
        return lambda: error
    with turn_of(task.case.layer):
        verdict = _probed(session, task)
    return lambda: verdict


def _probed(session: Session, task: Task) -> Verdict:
    layer = task.case.layer
    first_probe = Probe(layer) if layer.embedding is None else EmbeddedProbe(layer)
    probes = [first_probe, first_probe, *(Probe(layer, block) for block in range(1, first_probe.blocks))]
    in_training: list[tuple[Mode, int, AnyProbe]] = [
        ("train", seed, probe) for seed, probe in enumerate(probes, start=1)
    ]
    readings: list[Reading] = []
    for mode, seed, probe in [*in_training, ("eval", 0, first_probe)]:
        reading = _read_probe(session, task, probe, mode, seed)
        if isinstance(reading, Verdict):
            return reading
        readings.append(reading)
    *train_readings, eval_reading = readings
    draws = _Draws(train_readings)
    with _ONE_AT_A_TIME:
        return _judge(
            task, lambda rates: [*_training_problems(task, draws, rates), *_eval_problems(task, eval_reading)]
        )


def _judge(task: Task, find_problems: Callable[[Rates], list[str]]) -> Verdict:
    """`find_problems` lists the problems of the readings, given the layer's dropout rates.

    The rates are those of the specification, of the declared deviations, or of known deviations, to name the cause.
    """
    problems, declared = find_problems(task.case.layer.dropout.model_dump()), task.deviations
    if declared:
        as_declared = not find_problems(_patched_rates(task, declared))
        ids = " and ".join(deviation.deviation for deviation in declared)
        if as_declared and problems:
            names = tuple(deviation.deviation for deviation in declared)
            return Verdict(outcome=Outcome.DEVIATES, message=f"as declared: {ids}", deviations=names)
        if not problems:
            return Verdict(outcome=Outcome.STALE, message=f"declares {ids}, and meets the specification without it")
    if not problems:
        return Verdict(outcome=Outcome.PASS)
    cause = next(
        (
            deviations
            for deviations in _training_deviations(task)
            if not find_problems(_patched_rates(task, deviations))
        ),
        (),
    )
    sentences = " and ".join(f"{deviation.deviation} ({deviation.sentence.removesuffix('.')})" for deviation in cause)
    return Verdict(outcome=Outcome.FAIL, message="; ".join(problems) + (f": this is {sentences}" if sentences else ""))


def _training_deviations(task: Task) -> Iterator[tuple[Deviation, ...]]:
    """The deviations that change this layer's dropout in training: each alone, those first that change fewest rates,
    then several together."""
    deviations = [
        deviation for deviation in catalogue().values() if deviation.patch.in_training and changes(task.case, deviation)
    ]
    rates = task.case.layer.dropout.model_dump().items()
    deviations.sort(key=lambda each: len(_patched_rates(task, [each]).items() - rates))
    for count in range(1, len(AXES)):
        yield from combinations(deviations, count)


def _patched_rates(task: Task, deviations: Iterable[Deviation]) -> Rates:
    layer = task.case.layer
    for deviation in deviations:
        layer = patched_layer(layer, deviation)
    rates: Rates = layer.dropout.model_dump()
    return rates


def _read_probe(session: Session, task: Task, probe: AnyProbe, mode: Mode, seed: int) -> Reading | Verdict:
    dtype = task.format.numpy
    input_format = AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False)
    run = Run(check="output", mode=mode, given=input_format, seed=seed)
    key = "dropout", task.dtype, task.case.layer.layer, probe.block
    build = Build(layer=probe.layer, dtype=task.dtype)
    answer = session.observe_made(key, build, _parameters(probe, dtype), run, probe.inputs(dtype))
    if isinstance(answer, Failure):
        return Verdict(outcome=answer.outcome, message=f"mode {mode}: {answer.message}", kind=answer.kind)
    if set(answer) != {"output"}:
        return Verdict(outcome=Outcome.ERROR, message=f"mode {mode}: answered {sorted(answer)} instead of output")
    output = answer["output"]
    if output.shape != probe.output_shape or output.dtype != dtype:
        actual, expected = f"{output.dtype} {list(output.shape)}", f"{task.dtype} {list(probe.output_shape)}"
        return Verdict(
            outcome=Outcome.FAIL, stage="output", message=f"mode {mode}: output: {actual} instead of {expected}"
        )
    try:
        with _ONE_AT_A_TIME:
            return probe.read(output.astype(np.float64)) if isinstance(probe, EmbeddedProbe) else read(probe, output)
    except NoReading as problem:
        return Verdict(outcome=Outcome.FAIL, message=f"mode {mode}: dropout cannot be read off: {problem}")


def _parameters(probe: AnyProbe, dtype: np.dtype[Any]) -> dict[str, Streamed]:
    """Parameter name → its values, generated when they are written and again when they are compared."""
    return {
        parameter.name: Streamed(dtype, parameter.shape(probe.layer), partial(_generated, probe, parameter, dtype))
        for parameter in parameters_of(probe.layer)
    }


def _generated(probe: AnyProbe, parameter: Parameter, dtype: np.dtype[Any]) -> Iterator[np.ndarray[Any, Any]]:
    sparse = probe.sparse(parameter) if isinstance(probe, Probe) else None
    for part in parts_of(probe.parameter(parameter)) if sparse is None else sparse.parts():
        yield part.astype(dtype, copy=False)


class _Draws:
    """The readings in mode train, and the dependence between their masks.

    The dependence does not depend on the rates, which are tried one after another (the specification's, then those of
    each known deviation), so each statistic is computed once, on first use. Nothing here refers to itself: the readings
    of a large layer are freed with the last name of it, and not when the garbage collector comes by.
    """

    def __init__(self, readings: list[Reading]) -> None:
        self.readings = readings
        self._axes: dict[str, list[str]] = {}
        self._dependence: dict[tuple[str, ...], float] = {}

    def masks(self, placement: str) -> list[Masks]:
        return [reading.kept[placement] for reading in self.readings]

    def dependent_axes(self, placement: str) -> list[str]:
        """The axes along which neighbouring elements are dependent."""
        if placement not in self._axes:
            masks = self.masks(placement)
            self._axes[placement] = [
                name for axis, name in enumerate(AXES[placement]) if _are_neighbours_dependent(masks, axis)
            ]
        return self._axes[placement]

    def seed_dependence(self, placement: str) -> float:
        """The dependence between the masks of the first two seeds."""
        if (placement,) not in self._dependence:
            first, second, *_ = self.masks(placement)
            self._dependence[placement,] = dependence([(first, second)])
        return self._dependence[placement,]

    def joint_dependence(self, one: str, other: str) -> float:
        """The dependence between the masks of two placements."""
        if (one, other) not in self._dependence:
            flat = [(reading.kept[one].reshape(-1), reading.kept[other].reshape(-1)) for reading in self.readings]
            self._dependence[one, other] = dependence([(a[: b.size], b[: a.size]) for a, b in flat])
        return self._dependence[one, other]


def _training_problems(task: Task, draws: _Draws, rates: Rates) -> Iterator[str]:
    independent = []
    for placement, expected in _shown(draws.readings, rates).items():
        if axes := draws.dependent_axes(placement):
            yield f"dropout of {placement}: one draw for several {' and '.join(axes)}"
        else:
            independent.append(placement)
            if (result := rate(draws.masks(placement), expected)).wrong:
                yield f"dropout of {placement}: rate {result.observed:.3g} instead of {expected:g} (z = {result.z:.3g})"
        if abs(z := draws.seed_dependence(placement)) > Z_LIMIT:
            yield f"dropout of {placement}: two seeds drop the same elements (z = {z:.3g})"
        yield from _scale_problems(task, placement, draws.readings, 1 / (1 - expected), "")
        if _is_scale_far(draws.readings, placement, 1 / (1 - expected)):
            return  # so large a scale is mistaken for elements that another placement kept
    for one, other in combinations(independent, 2):
        if abs(z := draws.joint_dependence(one, other)) > Z_LIMIT:
            yield f"dropout of {one} and of {other} are drawn together (z = {z:.3g})"


def _shown(readings: list[Reading], rates: Rates) -> Rates:
    """The rates of the placements that the probe shows."""
    return {placement: rate for placement, rate in rates.items() if placement in readings[0].kept}


def _are_neighbours_dependent(masks: list[Masks], axis: int) -> bool:
    before = (slice(None),) * axis
    return abs(dependence([(mask[*before, 1:], mask[*before, :-1]) for mask in masks])) > Z_LIMIT


def _is_scale_far(readings: list[Reading], placement: str, expected: float) -> bool:
    scales = np.concatenate([reading.scales[placement] for reading in readings]) / expected
    return bool(scales.size and (scales.max() > 2 or scales.min() < 0.5))


def _eval_problems(task: Task, reading: Reading) -> Iterator[str]:
    for placement, mask in reading.kept.items():
        if dropped := np.count_nonzero(mask == DROPPED):
            visible = np.count_nonzero(mask != HIDDEN)
            yield f"mode eval: dropout of {placement} is on: {dropped} of {visible} elements are dropped"
        yield from _scale_problems(task, placement, [reading], 1.0, "mode eval: ")


def _scale_problems(task: Task, placement: str, readings: list[Reading], expected: float, mode: str) -> Iterator[str]:
    scales = np.concatenate([reading.scales[placement] for reading in readings])
    error = np.abs(scales / expected - 1)
    if scales.size and error.max() > SCALE_ROUNDOFFS * task.format.roundoff:
        worst = scales[error.argmax()]
        yield f"{mode}dropout of {placement}: what is kept is multiplied by {worst:.7g} instead of {expected:.7g}"
