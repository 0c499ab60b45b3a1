"""Asks the worker that examined a module every case, and judges the answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

from encoder_conformance.asking import ask
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.judge.expected import Expected
from encoder_conformance.plan import plan
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.task import Task
from encoder_conformance.wire.description import ModuleDescription
from encoder_conformance.worker.session import Session


@dataclass(frozen=True)
class ModulesTask(Task):
    """A task without the gradients that a module cannot give: by what it lacks, and by each half of a tied tensor."""

    without: frozenset[str] = frozenset()

    @property
    def tensors(self) -> tuple[str, ...]:
        names = super().tensors
        return names if self.check != "gradients" else tuple(name for name in names if name not in self.without)


@dataclass
class Judged:
    """The records of a module, and what of its answers a diagnosis takes."""

    records: list[Record] = field(default_factory=list)
    observations: Observations = field(default_factory=Observations)


def as_described(implementation: Implementation, described: ModuleDescription, name: str) -> Implementation:
    """The implementation that a module is: with the formats and stages that were found."""
    stages = tuple(sorted({*map(kind_of, described.stages), "output"}))
    checks = tuple(c for c in implementation.capabilities.checks if c != "stages" or len(stages) > 1)
    update = {"dtypes": described.dtypes, "stages": stages, "checks": checks}
    capabilities = implementation.capabilities.model_copy(update=update)
    return implementation.model_copy(update={"name": name, "capabilities": capabilities})


def judge_cases(
    session: Session,
    implementation: Implementation,
    described: ModuleDescription,
    cases: Sequence[Case],
    expected: Mapping[str, Expected],
    report: Callable[[Record], None],
) -> Judged:
    judged = Judged()
    for task in tasks_of(implementation, described, cases):
        golden = in_format(task.case, expected[task.case.id], task.format)
        answer = ask(session, task, golden, constants())
        judged.records.append(answer.record)
        judged.observations.note(task, answer.record)
        if answer.answers is not None:
            judged.observations.see(task, golden, answer.record, answer.answers)
        report(answer.record)
    return judged


def tasks_of(implementation: Implementation, described: ModuleDescription, cases: Sequence[Case]) -> Iterator[Task]:
    """The checks that apply, without the gradients that the module cannot give."""
    for planned in plan(implementation, list(cases)):
        if planned.opt_out is None:
            yield ModulesTask(
                **{each.name: getattr(planned, each.name) for each in fields(Task)}, without=described.ungiven
            )
