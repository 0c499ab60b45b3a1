"""Judges initialisation: the parameters, their initial values, and which are trainable (clauses A-4 and A-5)."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.training import turn_of
from encoder_conformance.judging.checks.training.fresh import FreshParameter, Judging
from encoder_conformance.judging.verdict import Judgement, Verdict
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

SEEDS = (1, 2)
Made = tuple[Mapping[str, FreshParameter], tuple[str, ...]]
"""A fresh layer's parameters, each judged, and the names of those that are trainable."""


def put_initialisation(session: Session, task: Task) -> Judgement | Failure:
    """Initialise the layer with each of two seeds. If the first fails, the second is not tried."""
    draws: list[Made] = []
    with turn_of(task.case.layer):
        for seed in SEEDS:
            judging = Judging(task)
            answer = session.initialise(task, seed, judging.receive)
            if isinstance(answer, Failure):
                return answer
            whole, trainable = answer
            draws.append((judging.every(whole), trainable))
    return lambda: _judge(task, draws)


def _judge(task: Task, draws: list[Made]) -> Verdict:
    for parameters, trainable in draws:
        if problems := [*_parameter_problems(task, parameters), *_trainable_problems(task, trainable)]:
            return Verdict(outcome=Outcome.FAIL, message="; ".join(problems))
    first, second = (parameters for parameters, _ in draws)
    problems = [problem for each in parameters_of(task.case.layer) for problem in first[each.name].values]
    problems += _draw_problems(task, first, second)
    return Verdict(outcome=Outcome.FAIL if problems else Outcome.PASS, message="; ".join(problems))


def _parameter_problems(task: Task, parameters: Mapping[str, FreshParameter]) -> Iterator[str]:
    expected = {p.name: p.shape(task.case.layer) for p in parameters_of(task.case.layer)}
    if set(parameters) != set(expected):
        count = sum(prod(parameter.shape) for parameter in parameters.values())
        problems = [f"{count:,} parameters instead of {sum(map(prod, expected.values())):,}"]
        differences = {"missing": set(expected) - set(parameters), "left over": set(parameters) - set(expected)}
        problems += [f"{kind} {', '.join(sorted(names))}" for kind, names in differences.items() if names]
        yield "; ".join(problems)
        return
    dtype = task.format.numpy
    for name, shape in expected.items():
        if parameters[name].shape != shape or parameters[name].dtype != dtype:
            actual = f"{parameters[name].dtype} {list(parameters[name].shape)}"
            yield f"{name} is {actual} instead of {dtype} {list(shape)}"


def _trainable_problems(task: Task, trainable: tuple[str, ...]) -> Iterator[str]:
    sizes = {p.name: prod(p.shape(task.case.layer)) for p in parameters_of(task.case.layer)}
    if frozen := [name for name in sizes if name not in trainable]:
        frozen_count, count = sum(sizes[name] for name in frozen), sum(sizes.values())
        yield f"{count - frozen_count:,} of {count:,} parameters are trained: not {', '.join(frozen)}"
    if unknown := sorted(set(trainable) - set(sizes)):
        yield f"trained, but no parameter of this layer: {', '.join(unknown)}"


def _draw_problems(
    task: Task, first: Mapping[str, FreshParameter], second: Mapping[str, FreshParameter]
) -> Iterator[str]:
    weights = [p.name for p in parameters_of(task.case.layer) if p.drawn == "weight"]
    for name in weights:
        if _equal(first[name], second[name]):
            yield f"{name}: the same for two seeds"
    for one, other in combinations(weights, 2):
        if _equal(first[one], first[other]):
            yield f"{one} and {other} are equal"


def _equal(one: FreshParameter, other: FreshParameter) -> bool:
    return one.digest is not None and (one.shape, one.digest) == (other.shape, other.digest)
