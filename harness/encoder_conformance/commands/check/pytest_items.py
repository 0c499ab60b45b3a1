"""The items that `pytest --conform TARGET` adds: each check of each case, asked of one worker."""

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encoder_conformance.commands.check.checking import Checking, ExaminedPart, needs_no_equation
from encoder_conformance.commands.check.chosen import chosen, judged_with, number_that_hides
from encoder_conformance.commands.check.declared import declared_from, read_manifest, update_manifest
from encoder_conformance.commands.check.findings import findings_of, of_way_back
from encoder_conformance.commands.check.from_python import CheckReport
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute, constants_at_once
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import SILENT, Progress
from encoder_conformance.platform.recent import Recent
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED

_KEPT = 64
"""Expectations that are kept: the checks of a case come one after the other."""


def judged_modules(session: pytest.Session, targets: Sequence[str]) -> "list[JudgedModule]":
    """One collector for each target. Raises pytest.UsageError for one that cannot be judged."""
    try:
        return [JudgedModule.of(session, target) for target in targets]
    except InputError as error:
        raise pytest.UsageError("--conform " + "\n".join(error.lines())) from None


def _told(config: pytest.Config, target: str) -> Progress:
    """A line for each thing that takes seconds, since no test runs yet: a pipe would be silent for a minute."""
    screen = config.pluginmanager.get_plugin("terminalreporter")
    if screen is None:  # a worker of pytest-xdist has none
        return SILENT

    def begin(what: str, _: int) -> None:
        screen.ensure_newline()
        screen.write_line(f"conform: {target}: {what} …")

    return Progress(begin=begin, step=lambda _: None)


class CheckFailed(Exception):
    """A check that does not conform."""


class JudgedModule(pytest.Collector):
    """One target, examined in a worker that all of its items share."""

    checking: Checking
    parts: list[ExaminedPart]
    observations: dict[str, Observations]
    expected: Recent[Expected]
    explained: set[tuple[str, str]]
    choices: dict[str, tuple[str, ...]]
    """Part → the deviations that it was found to choose."""
    failed: dict[str, list[tuple[Case, Record]]]
    """Part → what did not conform."""
    _folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def of(cls, session: pytest.Session, target: str) -> "JudgedModule":
        """Raises InputError."""
        made: JudgedModule = cls.from_parent(session, name=target, nodeid=f"conform::{target}")
        made._folder = tempfile.TemporaryDirectory(prefix="conform-")
        request = made.request(target, session.config)
        if session.config.getoption("conform_update"):
            request = made.updated(request, session.config)
        made.checking = Checking(request, Path(made._folder.name) / "check.log", _told(session.config, target))
        made.parts = list(made.checking.parts())
        made.observations = {part.subject.name: Observations() for part in made.parts}
        made.explained, made.choices = set(), {}
        made.failed = {}
        made.expected = Recent[Expected](_KEPT)
        return made

    def request(self, target: str, config: pytest.Config) -> CheckRequest:
        known = read_manifest(config.rootpath).modules.get(target)
        layer = config.getoption("conform_layer") or (known.layer if known else None)
        request = CheckRequest(
            target=target,
            folder=config.invocation_params.dir,
            level=config.getoption("conform_level"),
            declared=declared_from(each.deviation for each in known.deviations) if known else (),
            narrow=True,
            supposing=True,
        )
        return request.stating(layer, "--conform judges encoder layers")

    def updated(self, request: CheckRequest, config: pytest.Config) -> CheckRequest:
        """The request with the deviations that explain the module, which conform.yaml then lists."""
        without = replace(request, declared=())
        log = Path(self._folder.name) / "update.log"
        found = CheckReport(Checking(without, log, _told(config, request.target)).result()).deviations
        update_manifest(config.rootpath, request.target, config.getoption("conform_layer"), found)
        return self.request(request.target, config)

    def close(self) -> None:
        self.checking.module.close()
        self._folder.cleanup()

    def collect(self) -> Iterator[pytest.Item]:
        for part in self.parts:
            prefix = f"{part.at}-" if part.at else ""
            yield StatedItem.from_parent(self, name=f"{prefix}as-stated", part=part)
            for task in part.subject.tasks(self.checking.cases(part)):
                name = f"{task.case.id}[{task.dtype}-{task.check}]"
                yield CaseItem.from_parent(self, name=name, part=part, task=task)
        if any(part.at and part.subject.layer is not None for part in self.parts):
            yield ModelItem.from_parent(self, name="around-its-layers")

    def judge(self, part: ExaminedPart, task: Task) -> None:
        """Raises CheckFailed, the first time with the diagnosis of what was seen so far."""
        self.checking.module.turn_to(part.at)
        [answer] = judge(part.subject, [task], self.expectation, self.observations[part.subject.name])
        if answer.record.outcome not in EXPECTED and not self.is_chosen(part, task, answer.record):
            lines = [f"{answer.record.outcome.value}: {answer.record.message}", *self.diagnosed(part, task)]
            raise CheckFailed("\n".join(lines))

    def is_chosen(self, part: ExaminedPart, task: Task, record: Record) -> bool:
        """Whether a choice of its own explains the record, which is a warning, as `conform check` says it. One that
        explained another record is tried first, and then all that failed so far."""
        if part.described.stated is not None or self.checking.request.declared:
            return False
        subject, name = part.subject, part.subject.name
        failed, known = self.failed.setdefault(name, []), self.choices.get(name)
        failed.append((task.case, record))
        found = judged_with(known, subject, [task.case], [record], self.expectation) if known else None
        cases, records = list({case.id: case for case, _ in failed}.values()), [each for _, each in failed]
        found = found or number_that_hides(subject, cases, records, self.expectation)
        if found is None:
            in_catalogue_alone = needs_no_equation(part.described)
            diagnoses = self.observations[name].diagnoses(name, in_catalogue_alone=in_catalogue_alone)
            found = chosen(subject, cases, records, diagnoses, self.expectation)
        if found is not None:
            self.choices[name] = found.names
            warnings.warn(found.finding.message, stacklevel=1)
        return found is not None

    def expectation(self, case: Case) -> Expected:
        return self.expected.get([case.id, *case.numbers_from], lambda: compute(case, constants_at_once(case)))

    def diagnosed(self, part: ExaminedPart, task: Task) -> list[str]:
        """The diagnosis, once for each part and format: it takes seconds."""
        if (part.subject.name, task.dtype) in self.explained:
            return []
        self.explained.add((part.subject.name, task.dtype))
        found = self.observations[part.subject.name].diagnoses(
            task.implementation.name, in_catalogue_alone=needs_no_equation(part.described)
        )
        return [diagnosis_text(each) for each in found if each.dtype == task.dtype]


class _CheckItem(pytest.Item):
    parent: JudgedModule

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(CheckFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.config.rootpath, None, self.name


class ModelItem(_CheckItem):
    """What is found of a model around the layers that are judged."""

    def runtest(self) -> None:
        found = self.parent.checking.of_whole()
        for each in found:
            if each.severity == "warning":
                warnings.warn(each.message, stacklevel=1)
        if errors := [each.message for each in found if each.severity == "error"]:
            raise CheckFailed("\n".join(errors))


class _PartItem(_CheckItem):
    def __init__(self, *, part: ExaminedPart, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.part = part


class StatedItem(_PartItem):
    """The choices and parameters that were read off the module are those that it should have."""

    def runtest(self) -> None:
        checking = self.parent.checking
        request = checking.request
        found = [*findings_of(self.part.described, declared=bool(request.declared), reference=request.reference)]
        if self.part.subject.layer is not None and not self.part.like:
            checking.module.turn_to(self.part.at)
            found += of_way_back(checking.module.way_back())
        errors = [finding.message for finding in found if finding.severity == "error"]
        if self.part.subject.layer is None:
            raise CheckFailed("\n".join(["it could not be judged", *(finding.message for finding in found)]))
        if errors:
            raise CheckFailed("\n".join(errors))


class CaseItem(_PartItem):
    """One check of one case in one dtype."""

    def __init__(self, *, task: Task, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.task = task

    def runtest(self) -> None:
        self.parent.judge(self.part, self.task)
