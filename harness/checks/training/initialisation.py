"""Judges a layer as it is made: its parameters, their values, and which are trained (clauses A-4 and A-5)."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod

from encoder_conformance.checks.training.fresh import Fresh, Judging
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import Judgement, Verdict
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.task import Task
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

SEEDS = (1, 2)
Made = tuple[Mapping[str, Fresh], tuple[str, ...]]
"""A fresh layer's parameters, each judged as it came, and the names of those that are trained."""


def put_initialisation(session: Session, task: Task) -> Judgement:
    """Have the layer made with each of two seeds. A second is not asked for where the first gave none."""
    made: list[Made] = []
    for seed in SEEDS:
        judging = Judging(task)
        answer = session.initialise(task, seed, judging.receive)
        if isinstance(answer, Failure):
            failed = Verdict(outcome=answer.outcome, message=answer.message)
            return lambda: failed
        whole, trainable = answer
        made.append((judging.every(whole), trainable))
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


def _wrong_parameters(task: Task, made: Mapping[str, Fresh]) -> Iterator[str]:
    due = {p.name: p.shape(task.case.layer) for p in parameters_of(task.case.layer)}
    if set(made) != set(due):
        count, right = sum(prod(value.shape) for value in made.values()), sum(map(prod, due.values()))
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


def _wrong_values(task: Task, made: Mapping[str, Fresh]) -> Iterator[str]:
    for parameter in parameters_of(task.case.layer):
        yield from made[parameter.name].values


def _drawn_once(task: Task, made: Mapping[str, Fresh], again: Mapping[str, Fresh]) -> Iterator[str]:
    weights = [p.name for p in parameters_of(task.case.layer) if p.drawn == "weight"]
    for name in weights:
        if _equal(made[name], again[name]):
            yield f"{name}: the same for two seeds"
    for one, other in combinations(weights, 2):
        if _equal(made[one], made[other]):
            yield f"{one} and {other} are equal"


def _equal(one: Fresh, other: Fresh) -> bool:
    return one.digest is not None and (one.shape, one.digest) == (other.shape, other.digest)
