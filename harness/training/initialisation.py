"""Judges a layer as it is made: its parameters, their values, and which are trained (clauses A-4 and A-5)."""

from collections.abc import Iterator
from itertools import combinations
from math import prod, sqrt

import numpy as np

from harness.judge.outcome import Outcome
from harness.judge.verdict import Judgement, Verdict
from harness.plan import Task
from harness.portable import Floats
from harness.spec.parameters import parameters_of
from harness.training.statistics import FALSE_ALARM, Z_LIMIT, uniform, variance
from harness.wire.frames import Tensors
from harness.worker.lifecycle import Failure
from harness.worker.session import Session

SEEDS = (1, 2)
Made = tuple[Tensors, tuple[str, ...]]
"""A fresh layer's parameters, and the names of those that are trained."""
_ROUNDED = 1 + 2.0**-20
"""A bound may be passed by what rounding it to float32 makes."""


def put_initialisation(session: Session, task: Task) -> Judgement:
    """Have the layer made with each of two seeds. A second is not asked for where the first gave none."""
    made: list[Made] = []
    for seed in SEEDS:
        answer = session.initialise(task, seed)
        if isinstance(answer, Failure):
            failed = Verdict(outcome=answer.outcome, message=answer.message)
            return lambda: failed
        made.append(answer)
    return lambda: _judged(task, made)


def _judged(task: Task, made: list[Made]) -> Verdict:
    for parameters, trainable in made:
        if problems := [*_wrong_parameters(task, parameters), *_untrained(task, trainable)]:
            return Verdict(outcome=Outcome.FAIL, message="; ".join(problems))
    first, second = (parameters for parameters, _ in made)
    problems = [*_wrong_values(task, first), *_drawn_once(task, first, second)]
    if not problems:
        return Verdict(outcome=Outcome.PASS)
    return Verdict(outcome=Outcome.FAIL, message="; ".join(problems))


def _wrong_parameters(task: Task, made: Tensors) -> Iterator[str]:
    due = {p.name: p.shape(task.case.layer) for p in parameters_of(task.case.layer)}
    if set(made) != set(due):
        count, right = sum(value.size for value in made.values()), sum(map(prod, due.values()))
        parts = [f"{count:,} parameters instead of {right:,}"]
        parts += [f"missing {', '.join(sorted(set(due) - set(made)))}"] if set(due) - set(made) else []
        parts += [f"left over {', '.join(sorted(set(made) - set(due)))}"] if set(made) - set(due) else []
        yield "; ".join(parts)
        return
    dtype = task.format.numpy
    for name, shape in due.items():
        if made[name].shape != shape or made[name].dtype != dtype:
            was = f"{made[name].dtype} {list(made[name].shape)}"
            yield f"{name} is {was} instead of {dtype} {list(shape)}"


def _untrained(task: Task, trainable: tuple[str, ...]) -> Iterator[str]:
    sizes = {p.name: prod(p.shape(task.case.layer)) for p in parameters_of(task.case.layer)}
    if frozen := [name for name in sizes if name not in trainable]:
        held, count = sum(sizes[name] for name in frozen), sum(sizes.values())
        yield f"{count - held:,} of {count:,} parameters are trained: not {', '.join(frozen)}"
    if unknown := sorted(set(trainable) - set(sizes)):
        yield f"trained, but no parameter of this layer: {', '.join(unknown)}"


def _wrong_values(task: Task, made: Tensors) -> Iterator[str]:
    for parameter in parameters_of(task.case.layer):
        name, value = parameter.name, made[parameter.name].astype(np.float64)
        if parameter.drawn != "weight":
            due = 1.0 if parameter.drawn == "gain" else 0.0
            if wrong := int((value != due).sum()):
                first = value[value != due][0]
                yield f"{name}: {wrong} of {value.size} elements are not {due:g}, the first of them {first:.4g}"
        else:
            yield from _not_xavier(name, value)


def _not_xavier(name: str, value: Floats) -> Iterator[str]:
    bound = sqrt(6 / sum(value.shape))
    largest = float(np.abs(value).max())
    if not largest <= bound * _ROUNDED:
        yield f"{name}: as large as {largest:.4g}, where Xavier's bound is {bound:.4g}"
    elif abs(z := variance(value, bound)) > Z_LIMIT:
        root = float(np.sqrt(np.mean(value**2)))
        yield f"{name}: root mean square {root:.4g} instead of {bound / sqrt(3):.4g} (z = {z:.3g})"
    elif (chance := uniform(value, bound)) < FALSE_ALARM:
        yield f"{name}: not drawn uniformly from ±{bound:.4g} (chance {chance:.1g})"
    for axis, lines in enumerate(("rows", "columns")):
        if np.unique(value, axis=axis).shape[axis] < value.shape[axis]:
            yield f"{name}: two equal {lines}"


def _drawn_once(task: Task, made: Tensors, again: Tensors) -> Iterator[str]:
    weights = [p.name for p in parameters_of(task.case.layer) if p.drawn == "weight"]
    for name in weights:
        if np.array_equal(made[name], again[name]):
            yield f"{name}: the same for two seeds"
    for one, other in combinations(weights, 2):
        if made[one].shape == made[other].shape and np.array_equal(made[one], made[other]):
            yield f"{one} and {other} are equal"
