"""The plan: what each implementation is asked, in which order, and what it is not asked and why."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness.deviations.acting import acting
from harness.deviations.acting import opt_out as opt_out_by_declaring
from harness.errors import InputError, nearest
from harness.impl.manifest import Implementation
from harness.invariants.ability import opt_out as opt_out_of_invariant
from harness.spec.case import Case
from harness.spec.deviation import Deviation
from harness.spec.dtypes import FORMATS, DtypeName, Format
from harness.spec.level import LEVELS, Level
from harness.spec.situation import Check


@dataclass(frozen=True)
class Task:
    """One check of one case in one dtype, for one implementation; `opt_out` says why it is not asked."""

    implementation: Implementation
    case: Case
    dtype: DtypeName
    check: Check
    opt_out: str | None
    rounded_as: DtypeName | None = None
    """The format that is computed in, where it is narrower than that of the tensors that come and go."""

    @property
    def format(self) -> Format:
        """What the answer comes in, and the roundoff that it is judged by."""
        own = FORMATS[self.dtype]
        return own if self.rounded_as is None else own.computed_in(FORMATS[self.rounded_as])

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """What the implementation declares of it."""
        return acting(self.implementation, self.case, self.dtype, self.check)

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other tasks of a run; its record has the same."""
        return self.implementation.name, self.case.id, self.dtype, self.check

    @property
    def build_key(self) -> tuple[object, ...]:
        """Tasks with the same key are answered by the same built layer."""
        exponents = tuple(sorted(self.case.situation.parameter_exponents.items()))
        return self.dtype, self.case.layer.layer, exponents, self.case.numbers_from

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that the implementation is to answer with, in the order of computation."""
        names = tuple(self.case.expected_shapes(self.check))
        if self.check != "stages":
            return names
        return tuple(filter(self.implementation.capabilities.shows, names))


def select(cases: dict[str, Case], globs: tuple[str, ...], level: Level | None) -> list[Case]:
    """The cases that any glob matches, of the given level or a stricter one."""
    chosen: dict[str, Case] = {}
    for glob in globs or ("*",):
        matched = {name: case for name, case in cases.items() if fnmatchcase(name, glob)}
        if not matched:
            raise InputError(
                f"matches no case: {glob!r}", where="--case", hint=f"{nearest(glob, cases)} (conform list cases)"
            )
        chosen |= matched
    kept = [case for case in chosen.values() if level is None or LEVELS.index(case.level) <= LEVELS.index(level)]
    if not kept:
        raise InputError(
            f"{level} has none of the {len(chosen)} cases that are named",
            where="--level",
            hint="conform list cases shows each case's level",
        )
    return kept


def plan(implementation: Implementation, cases: list[Case], dtypes: tuple[DtypeName, ...] = ()) -> list[Task]:
    """Every task in these dtypes, or in all that the cases name; ordered so that each layer is built seldom."""
    tasks = [
        Task(implementation, case, dtype, check, _opt_out(implementation, case, dtype, check))
        for case in cases
        for dtype in case.situation.dtypes
        if dtype in dtypes or not dtypes
        for check in case.situation.checks
    ]
    return sorted(tasks, key=lambda task: repr(task.build_key))


def _opt_out(implementation: Implementation, case: Case, dtype: DtypeName, check: Check) -> str | None:
    if check == "invariant":
        own = opt_out_of_invariant(implementation, case, dtype)
    else:
        own = implementation.opt_out(case, dtype, check)
    return own or opt_out_by_declaring(implementation, case, dtype, check)
