"""The environment of a run: machine, versions and sizes."""

import os
import platform
from collections.abc import Sequence

import encoder_conformance
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.judging.records import RunEnvironment
from encoder_conformance.platform.processors import processor


def environment(assignments: Sequence[Assignment], run: SuiteRun) -> RunEnvironment:
    """The machine, versions and sizes of a run, for its report."""
    cases = {task.case.id: task.case for assignment in assignments for task in assignment.tasks}
    return RunEnvironment(
        conform=encoder_conformance.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processor=processor(),
        cpus=os.cpu_count() or 1,
        jobs=run.jobs,
        threads_per_worker=run.threads,
        memory_per_worker=run.options.limits.memory,
        device=run.options.device,
        seed=run.options.seed,
        specification={
            "cases": len(cases),
            "layers": len({case.layer.layer for case in cases.values()}),
            "situations": len({case.situation.situation for case in cases.values()}),
        },
    )
