"""What is kept of a run on a cluster, from its beginning on: a report that says how far it came, and the parts."""

import contextlib
import datetime
import os
import platform
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import encoder_conformance
from encoder_conformance.commands.cluster.worker import PlanPart, Result, RunQuestion
from encoder_conformance.commands.merge import write_report
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import not_run
from encoder_conformance.judging.records import Absent, EndedBy, Judged, Report, RunEnvironment
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.platform.interrupts import deferred_interrupts
from encoder_conformance.platform.processors import processor
from encoder_conformance.reports.merge.merge import merge
from encoder_conformance.reports.run.collection import ended_by
from encoder_conformance.reports.run.folder import NAME


class KeptParts:
    """The reports of parts in a run's folder, and one report of them, in which every planned check has a record."""

    def __init__(
        self,
        folder: Path,
        plans: Sequence[tuple[Implementation, Sequence[Task]]],
        absent: Sequence[Absent],
        question: RunQuestion,
    ) -> None:
        """Begin the report: nothing is judged yet."""
        self._folder, self._absent = folder, tuple(absent)
        self._tasks = [task for _, tasks in plans for task in tasks]
        self._parts: dict[str, Report] = {}
        self._begun = _begun(plans, question)
        self.report = self._write(None)

    def keep(self, part: PlanPart, result: Result) -> None:
        """Have the disk hold a part, and a report in which it counts: both, if an interrupt comes meanwhile."""
        name = part.implementation.rpartition("/")[2].replace(":", "-").replace(",", "-")
        place = self._folder / "parts" / f"{name}-{part.shard.number}-of-{part.shard.of}"
        with deferred_interrupts(), writable(str(place)):
            replace_file(place / NAME, result.report.encode())
            self._parts[part.name] = Report.model_validate_json(result.report)
            self.report = self._write(None)

    @contextlib.contextmanager
    def closed_if_interrupted(self) -> Generator[None]:
        """Whatever ends the block early, the report says so, and the user where it is."""
        try:
            yield
        except BaseException as error:
            self.report = self._write(ended_by(error))
            kept = f"{len(self._parts)} parts are in {self._folder / NAME}, marked incomplete"
            error.add_note(kept if self._parts else "nothing was judged")
            raise

    def _write(self, ended: EndedBy | None) -> Report:
        """One report of all parts that are there: of the others, that they were not run."""
        told = [report.model_copy(update={"arguments": self._begun.arguments}) for report in self._parts.values()]
        merged = merge(told, list(self._parts)) if told else self._begun
        known = {record.key: record for record in merged.records}
        records = tuple(known.get(task.key) or not_run(task) for task in self._tasks)
        whole = merged.complete and len(known) == len(records)
        missing = {each.name for each in merged.implementations}
        update = {
            "records": records,
            "complete": whole,
            "finished": merged.finished if whole else None,
            "absent": self._absent,
            "ended_by": None if whole else ended,
            "implementations": (
                *merged.implementations,
                *(each for each in self._begun.implementations if each.name not in missing),
            ),
        }
        report = merged.model_copy(update=update)
        write_report(report, self._folder)
        return report


def _begun(plans: Sequence[tuple[Implementation, Sequence[Task]]], question: RunQuestion) -> Report:
    """The report of a run of which no part is there."""
    tasks = [task for _, each in plans for task in each]
    return Report(
        complete=False,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        finished=None,
        arguments=tuple(sys.argv[1:]),
        environment=RunEnvironment(
            conform=encoder_conformance.__version__,
            python=platform.python_version(),
            platform=platform.platform(),
            processor=processor(),
            cpus=os.cpu_count() or 1,
            jobs=1,
            threads_per_worker=question.threads or 1,
            memory_per_worker=question.memory,
            device=question.device,
            seed=question.seed,
            specification={
                "cases": len({task.case.id for task in tasks}),
                "layers": len({task.case.layer.layer for task in tasks}),
                "situations": len({task.case.situation.situation for task in tasks}),
            },
        ),
        implementations=tuple(_unstarted(each, question) for each, _ in plans),
        absent=(),
        records=(),
    )


def _unstarted(implementation: Implementation, question: RunQuestion) -> Judged:
    """An implementation that no worker has started yet."""
    return Judged(
        name=implementation.name,
        title=implementation.title,
        framework=implementation.framework,
        command=implementation.command,
        versions={},
        settings={},
        log="",
        isolated=question.isolate,
    )
