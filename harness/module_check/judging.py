"""Asks the worker that examined a module every case, and judges the answers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.module_check.description import Described
from encoder_conformance.plan import plan
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.task import Task


def as_described(implementation: Implementation, described: Described, name: str) -> Implementation:
    """The implementation that a module is: with the formats and stages that were found."""
    stages = tuple(sorted({*map(kind_of, described.stages), "output"}))
    checks = tuple(c for c in implementation.capabilities.checks if c != "stages" or len(stages) > 1)
    update = {"dtypes": described.dtypes, "stages": stages, "checks": checks}
    capabilities = implementation.capabilities.model_copy(update=update)
    return implementation.model_copy(update={"name": name, "capabilities": capabilities})


def tasks_of(implementation: Implementation, described: Described, cases: Sequence[Case]) -> Iterator[Task]:
    """The checks that apply, without the gradients that the module cannot give."""
    tied = {name for pair in described.tied for name in pair}
    without = frozenset({*described.absent, *tied})
    return (replace(task, without=without) for task in plan(implementation, list(cases)) if task.opt_out is None)
