"""The plan: each implementation's tasks in order, with a reason for each check that does not apply."""

from fnmatch import fnmatchcase
from functools import cache

from encoder_conformance.implementation.declared import active_deviations
from encoder_conformance.implementation.declared import opt_out as opt_out_by_declaring
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.families import SHIPPED
from encoder_conformance.spec.follow_ups import FollowUp, base_of, each_follow_up, follow_ups
from encoder_conformance.spec.level import LEVELS, Level
from encoder_conformance.spec.reason import Reason
from encoder_conformance.spec.situation import Check


def select(cases: dict[str, Case], globs: tuple[str, ...], level: Level | None) -> list[Case]:
    """The cases that any glob matches, of this level or a stricter one. Raises InputError if there are none."""
    matching: dict[str, Case] = {}
    for glob in globs or ("*",):
        matched = {name: case for name, case in cases.items() if fnmatchcase(name, glob)}
        if not matched:
            raise InputError(
                f"matches no case: {glob!r}", where="--case", hint=f"{nearest(glob, cases)} (conform list cases)"
            )
        matching |= matched
    selected = [case for case in matching.values() if level is None or LEVELS.index(case.level) <= LEVELS.index(level)]
    if not selected:
        raise InputError(
            f"{level} has none of the {len(matching)} cases that are named",
            where="--level",
            hint="conform list cases shows each case's level",
        )
    return selected


def asked_of(implementation: Implementation, cases: list[Case]) -> list[Case]:
    """Of these, the cases of the layers that it is asked: those of published encoders or all others (rule L-8)."""
    return [case for case in cases if (case.layer.family in SHIPPED) == implementation.is_of_published]


def plan(implementation: Implementation, cases: list[Case], dtypes: tuple[DtypeName, ...] = ()) -> list[Task]:
    """The tasks in these dtypes, or in all that the cases name, ordered so that few layers are built twice."""
    tasks = [
        _task(implementation, case, dtype, check)
        for case in cases
        for dtype in case.situation.dtypes
        if dtype in dtypes or not dtypes
        for check in case.situation.checks
    ]
    return sorted(tasks, key=lambda task: repr(task.build_key))


def _task(implementation: Implementation, case: Case, dtype: DtypeName, check: Check) -> Task:
    deviations = active_deviations(implementation, case, dtype, check)
    opt_out = _own_opt_out(implementation, case, dtype, check) or opt_out_by_declaring(case, check, deviations)
    return Task(implementation, case, dtype, check, opt_out and _once(opt_out), deviations)


@cache
def _once(reason: Reason) -> Reason:
    """The first of equal reasons: thousands of tasks share a few, and memory has each once."""
    return reason


def _own_opt_out(implementation: Implementation, case: Case, dtype: DtypeName, check: Check) -> Reason | None:
    """Why the check is not run, or None if it is. No invariant is run of which every follow-up is opted out of."""
    reason = implementation.opt_out(case, dtype, check)
    if check != "invariant" or reason:
        return reason
    if reason := implementation.opt_out(base_of(case), dtype, "output"):
        return reason
    reasons = []
    for follow_up in each_follow_up(case):
        reasons.append(implementation.opt_out(follow_up.case, dtype, "output"))
        if reasons[-1] is None:
            return None
    return reasons[0]


def supported_follow_ups(implementation: Implementation, case: Case, dtype: str) -> tuple[FollowUp, ...]:
    """The follow-ups that the implementation does not opt out of; only these are run."""
    return tuple(each for each in follow_ups(case) if implementation.opt_out(each.case, dtype, "output") is None)
