"""Puts further questions to an implementation once its checks are done: a small run of its own, for the diagnosis."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.observation import Observation
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.subjects.plan import plan


def ask_again(ready: Ready, dtype: str, cases: Sequence[Case], *, options: RunOptions, logs: Path) -> list[Observation]:
    """Observe the implementation in these cases, which the oracle computes first; those alone that it answers
    before the run's time is over."""
    tasks = [task for task in plan(ready.implementation, list(cases)) if task.dtype == dtype and not task.opt_out]
    if not tasks:
        return []
    goldens = {task.case.id: compute(task.case, constants()) for task in tasks}
    options = replace(options, jobs=1, fail_fast=False)
    run = SuiteRun([Assignment(ready, tasks)], lambda case: goldens[case.id], options, logs)
    for _ in run:
        pass
    return run.observations(ready.implementation.name).of(dtype)
