"""Judges dropout by probe layers, run in mode train and once in mode eval (clauses A-1 to A-3, rules Q-1 to Q-3), and
gradients in mode train (A-1, Q-5)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from typing import Any

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.training import turn_of
from encoder_conformance.judging.checks.training.embedded import EmbeddedProbe, unfit_embedding
from encoder_conformance.judging.checks.training.gradients import put_gradients
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
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.parameters import Parameter, parameters_of
from encoder_conformance.spec.portable import Floats
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


def put_dropout(session: Session, task: Task) -> Judgement | Failure:
    """Run the probe of each block of hidden units in mode train, the first one with two seeds, and once in mode eval.

    Each answer is read when it comes and then freed. The readings are judged at once and freed too. Of large layers,
    whose readings are tens of megabytes, one implementation's are in memory at a time.
    """
    layer = task.case.layer
    if problem := unfit(layer) if layer.embedding is None else unfit_embedding(layer):
        return Failure(Outcome.ERROR, problem)
    with turn_of(task.case.layer):
        verdict = _probed(session, task)
        if isinstance(verdict, Failure):
            return verdict
        wrong = put_gradients(session, task)
    return wrong if isinstance(wrong, Failure) else partial(_with_gradients, verdict, wrong)


def _with_gradients(verdict: Verdict, wrong: str) -> Verdict:
    """The verdict on what is dropped, and what is wrong with the gradients; "": nothing."""
    if not wrong:
        return verdict
    message = wrong if verdict.outcome in EXPECTED else f"{verdict.message}; {wrong}"
    return Verdict(outcome=Outcome.FAIL, message=message)


def _probed(session: Session, task: Task) -> Verdict | Failure:
    layer = task.case.layer
    first_probe = Probe(layer) if layer.embedding is None else EmbeddedProbe(layer)
    probes = [first_probe, first_probe, *(Probe(layer, block) for block in range(1, first_probe.blocks))]
    in_training: list[tuple[Mode, int, AnyProbe]] = [
        ("train", seed, probe) for seed, probe in enumerate(probes, start=1)
    ]
    readings: list[Reading] = []
    for mode, seed, probe in [*in_training, ("eval", 0, first_probe)]:
        reading = _read_probe(session, task, probe, mode, seed)
        if not isinstance(reading, Reading):
            return reading
        readings.append(reading)
    *train_readings, eval_reading = readings
    with _ONE_AT_A_TIME:
        draws = _draws_in(train_readings, _patched_rates(task, ()))
        in_eval = list(_eval_problems(task, eval_reading))
        return _judge(task, lambda rates: [*_training_problems(task, draws, rates), *in_eval])


def _judge(task: Task, find_problems: Callable[[Rates], list[str]]) -> Verdict:
    """`find_problems` lists the problems of the readings, given the layer's dropout rates.

    The rates are those of the specification, of the declared deviations, or of known deviations, to name the cause.
    """
    problems, declared = find_problems(_patched_rates(task, ())), task.deviations
    names = tuple(deviation.deviation for deviation in declared)
    ids = " and ".join(names)
    if not problems and not declared:
        return Verdict(outcome=Outcome.PASS)
    if not problems:
        return Verdict(outcome=Outcome.STALE, message=f"declares {ids}, and meets the specification without it")
    if declared and not find_problems(_patched_rates(task, declared)):
        return Verdict(outcome=Outcome.DEVIATES, message=f"as declared: {ids}", deviations=names)
    cause = next((each for each in _training_deviations(task) if not find_problems(_patched_rates(task, each))), ())
    sentences = " and ".join(f"{deviation.deviation} ({deviation.sentence.removesuffix('.')})" for deviation in cause)
    return Verdict(outcome=Outcome.FAIL, message="; ".join(problems) + (f": this is {sentences}" if sentences else ""))


def _training_deviations(task: Task) -> Iterator[tuple[Deviation, ...]]:
    """The deviations that change this layer's dropout in training: each alone, those first that change fewest rates,
    then several together."""
    deviations = [
        deviation for deviation in catalogue().values() if deviation.patch.in_training and changes(task.case, deviation)
    ]
    rates = _patched_rates(task, ()).items()
    deviations.sort(key=lambda each: len(_patched_rates(task, [each]).items() - rates))
    for count in range(1, len(AXES)):
        yield from combinations(deviations, count)


def _patched_rates(task: Task, deviations: Iterable[Deviation]) -> Rates:
    rates: Rates = reduce(patched_layer, deviations, task.case.layer).dropout.model_dump()
    return rates


def _read_probe(session: Session, task: Task, probe: AnyProbe, mode: Mode, seed: int) -> Reading | Verdict | Failure:
    dtype = task.format.numpy
    input_format = AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False)
    run = Run(check="output", mode=mode, given=input_format, seed=seed)
    key = "dropout", task.dtype, task.case.layer.layer, probe.block
    build = Build(layer=probe.layer, dtype=task.dtype)
    answer = session.observe_made(key, build, _parameters(probe, dtype), run, probe.inputs(dtype))
    if isinstance(answer, Failure):
        return replace(answer, message=f"mode {mode}: {answer.message}")
    if set(answer) != {"output"}:
        return Failure(Outcome.ERROR, f"mode {mode}: answered {sorted(answer)} instead of output")
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
        return Failure(Outcome.FAIL, f"mode {mode}: dropout cannot be read off: {problem}")


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


@dataclass(frozen=True)
class _Draws:
    """The masks and scales in mode train, by placement, and the dependence between masks, which no rate changes.

    `axes`: those along which neighbouring elements are dependent. `seeds`: z of the masks of the first two seeds.
    `joint`: z of the masks of two placements.
    """

    masks: dict[str, list[Masks]]
    scales: dict[str, Floats]
    axes: dict[str, list[str]]
    seeds: dict[str, float]
    joint: dict[tuple[str, str], float]


def _draws_in(readings: list[Reading], placements: Iterable[str]) -> _Draws:
    masks = {each: [reading.kept[each] for reading in readings] for each in placements if each in readings[0].kept}
    return _Draws(
        masks,
        {each: np.concatenate([reading.scales[each] for reading in readings]) for each in masks},
        {each: [AXES[each][axis] for axis in _dependent_axes(drawn)] for each, drawn in masks.items()},
        {each: dependence([(drawn[0], drawn[1])]) for each, drawn in masks.items()},
        {pair: _joint_dependence(masks[pair[0]], masks[pair[1]]) for pair in combinations(masks, 2)},
    )


def _dependent_axes(masks: list[Masks]) -> Iterator[int]:
    for axis in range(masks[0].ndim):
        before = (slice(None),) * axis
        if abs(dependence([(mask[*before, 1:], mask[*before, :-1]) for mask in masks])) > Z_LIMIT:
            yield axis


def _joint_dependence(one: list[Masks], other: list[Masks]) -> float:
    flat = [(a.reshape(-1), b.reshape(-1)) for a, b in zip(one, other, strict=True)]
    return dependence([(a[: b.size], b[: a.size]) for a, b in flat])


def _training_problems(task: Task, draws: _Draws, rates: Rates) -> Iterator[str]:
    independent = []
    for placement, masks in draws.masks.items():
        scales, expected = draws.scales[placement], rates[placement]
        if axes := draws.axes[placement]:
            yield f"dropout of {placement}: one draw for several {' and '.join(axes)}"
        else:
            independent.append(placement)
            if (result := rate(masks, expected)).wrong:
                yield f"dropout of {placement}: rate {result.observed:.3g} instead of {expected:g} (z = {result.z:.3g})"
        if abs(z := draws.seeds[placement]) > Z_LIMIT:
            yield f"dropout of {placement}: two seeds drop the same elements (z = {z:.3g})"
        right = 1 / (1 - expected)
        yield from _scale_problems(task, placement, scales, right)
        if scales.size and ((scales / right).max() > 2 or (scales / right).min() < 0.5):
            return  # so large a scale is mistaken for elements that another placement kept
    for one, other in combinations(independent, 2):
        if abs(z := draws.joint[one, other]) > Z_LIMIT:
            yield f"dropout of {one} and of {other} are drawn together (z = {z:.3g})"


def _eval_problems(task: Task, reading: Reading) -> Iterator[str]:
    for placement, mask in reading.kept.items():
        if dropped := np.count_nonzero(mask == DROPPED):
            visible = np.count_nonzero(mask != HIDDEN)
            yield f"mode eval: dropout of {placement} is on: {dropped} of {visible} elements are dropped"
        problems = _scale_problems(task, placement, reading.scales[placement], 1.0)
        yield from (f"mode eval: {problem}" for problem in problems)


def _scale_problems(task: Task, placement: str, scales: Floats, expected: float) -> Iterator[str]:
    error = np.abs(scales / expected - 1)
    if scales.size and error.max() > SCALE_ROUNDOFFS * task.format.roundoff:
        worst = scales[error.argmax()]
        yield f"dropout of {placement}: what is kept is multiplied by {worst:.7g} instead of {expected:.7g}"
