"""Chooses what a script shows, the smallest failing check of a run, and gathers what is expected of it."""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Judged, Record, Report
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import every_case, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import WITH_GOLDEN, Check
from encoder_conformance.subjects.plan import plan
from encoder_conformance.subjects.starting import require_ready
from encoder_conformance.worker.limits import WorkerLimits

_PLAIN = 100.0
"""The rms in σ from which a failure is plain."""
_SHOWN_BY_A_SCRIPT = (Outcome.FAIL, Outcome.ERROR)


@dataclass(frozen=True)
class FailingCheck:
    """A check that fails, for a script: its task, its adapter, what the run said of it, and the versions."""

    record: Record
    task: Task
    ready: Ready
    expected: Expected
    judged: Judged
    threads: int
    diagnosis: str
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    """Of what is run to make the script and to try it: isolated where the run was."""


def failure_of(report: Report, pattern: str, dtype: str | None, ready: Ready) -> FailingCheck:
    """The smallest failing check that matches, with all that its script needs. Raises InputError if there is none."""
    deployed = ready.implementation.capabilities.export  # a model that shows its output alone
    checks: frozenset[Check] = frozenset({"output"}) if deployed else WITH_GOLDEN
    record, case = _smallest_failure(report, ready.implementation.name, pattern, dtype, checks)
    task = _task_of(record, case, ready)
    goldens = Goldens([case])
    goldens.compute()
    texts = (diagnosis_text(each).removeprefix("⇒ ") for each in report.diagnoses_of(record))
    return FailingCheck(
        record=record,
        task=task,
        ready=ready,
        expected=goldens(case),
        judged=next(each for each in report.implementations if each.name == record.implementation),
        threads=report.environment.threads_per_worker,
        diagnosis=next(texts, ""),
    )


def _smallest_failure(
    report: Report, name: str, pattern: str, dtype: str | None, checks: Set[Check]
) -> tuple[Record, Case]:
    """The failing check of the smallest case that matches. Raises InputError if none can be shown by a script."""
    layers = tuple(Path(word) for before, word in pairwise(report.arguments) if before == "--layer")
    cases = load(extra_layers=layers).cases if layers else every_case()
    failing = [
        record
        for record in report.records
        if record.implementation == name
        and fnmatchcase(record.case, pattern)
        and dtype in (None, record.dtype)
        and record.outcome in _SHOWN_BY_A_SCRIPT
        and record.check in checks
        and record.case in cases
    ]
    if not failing:
        what = "" if pattern == "*" else f" in {pattern}"
        hint = "a script shows wrong numbers and exceptions; conform explain shows every failure"
        raise InputError(f"no output, stage or gradient of {name} failed{what}", where="conform reproduce", hint=hint)
    first = min(failing, key=lambda record: _size(cases[record.case], record))
    return first, replace(cases[first.case], seed=report.environment.seed)


def _task_of(record: Record, case: Case, ready: Ready) -> Task:
    """The check that the record is of. Raises InputError if the manifest has changed and does not ask it any more."""
    for task in plan(ready.implementation, [case], ()):
        if (task.dtype, task.check) == (record.dtype, record.check) and task.opt_out is None:
            return task
    where = f"{ready.implementation.name} {case.id} {record.dtype} {record.check}"
    raise InputError("is not asked any more", where=where, hint="run conform run again")


def ready_to_show(report: Report, implementation: str, pythons: dict[str, str]) -> Ready:
    """The adapter in Python that the script is to be made of, and its interpreter.

    Raises InputError if the run did not judge it, which matters more than that it cannot be started here.
    """
    folder, found = find_implementation(implementation)
    names = [judged.name for judged in report.implementations]
    if found.name not in names:
        raise InputError(f"{found.name!r} is not in the report", where="--impl", hint=nearest(found.name, names))
    if found.command[0] != "python":
        hint = "a script is made of an adapter in Python"
        raise InputError(f"its adapter is started by {found.command[0]}", where=found.name, hint=hint)
    return require_ready(found, folder, pythons, "--impl")


def _size(case: Case, record: Record) -> tuple[int, ...]:
    """A failure that nobody takes for noise, few layers and features, the plainest check, no mask, few elements."""
    layer, situation = case.layer, case.situation
    elements = situation.batch * situation.sequence * layer.d_model
    checks = ("output", "weights", "stages", "gradients")
    masked = sum(each is not None for each in (situation.mask.padding, situation.mask.attention, situation.mask.bias))
    close = record.rms is not None and record.rms < _PLAIN
    return close, layer.stack.layers, layer.d_model, checks.index(record.check), masked, elements
