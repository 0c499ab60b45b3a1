"""What the parent keeps of a check once it is judged: a few numbers for the table, and nothing of its tensors."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from encoder_conformance.commands.explain import explain
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import UnjudgedAnswer, not_run
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.reports.run.ledger import Ledger
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages
from encoder_conformance.subjects.plan import plan

WORST = {"worst_index": (0, 1, 2), "observed": 1.0, "expected": 1.0, "sigma": 1e-7}
TENSORS = tuple(
    TensorVerdict(tensor=stage, conforms=True, rms=0.5, max=2.0, **WORST) for stage in stages(load().layers["pre-gelu"])
)


@pytest.fixture
def assignment(honest: Path) -> Assignment:
    implementation = read_implementation(honest)
    return Assignment(
        Ready(implementation, honest, ("python", "adapter.py")), plan(implementation, [*load().cases.values()])
    )


def judged(task: Task, number: int) -> Record:
    changes = {"outcome": Outcome.PASS, "rms": 0.5, "max": 2.0, "message": f"message {number} " * 20, "seconds": 0.01}
    return not_run(task).model_copy(update={**changes, "tensors": TENSORS})


def ledger_of(assignment: Assignment, folder: Path) -> Ledger:
    session = SimpleNamespace(versions={}, worker=SimpleNamespace(settings={}), log=Path("log"))
    run: Any = SimpleNamespace(
        jobs=1, threads=1, options=RunOptions(), peak_memory=lambda _: None, session=lambda _: session
    )
    return Ledger(folder, [assignment], [], run)


@pytest.mark.release
def test_records_do_not_stay_in_memory(assignment: Assignment, tmp_path: Path) -> None:
    assignment = replace(assignment, tasks=assignment.tasks[:1000])
    ledger = ledger_of(assignment, tmp_path)
    count = len(assignment.tasks)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number, task in enumerate(assignment.tasks):
        ledger.add(judged(task, number))
    assert tracemalloc.get_traced_memory()[0] - before < 100 * count  # a record has six thousand bytes
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    report = ledger.close()
    assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
    tracemalloc.stop()
    assert report.complete
    found = read_report(tmp_path)
    assert [record.key for record in found.records] == [task.key for task in assignment.tasks]
    assert all(record.tensors == TENSORS for record in found.records)
    assert (tmp_path / "records.jsonl").stat().st_size > 2000 * count


@pytest.mark.release
@pytest.mark.parametrize("ended", [True, False])
def test_explain_reads_one_record_after_another(assignment: Assignment, tmp_path: Path, ended: bool) -> None:
    assignment = replace(assignment, tasks=assignment.tasks[:200])
    ledger = ledger_of(assignment, tmp_path)
    *others, last = assignment.tasks
    for number, task in enumerate(others):
        ledger.add(judged(task, number))
    ledger.add(judged(last, 0).model_copy(update={"outcome": Outcome.FAIL, "message": "out of line"}))
    if ended:
        ledger.close()
    words = ["--out", str(tmp_path)]
    CliRunner().invoke(explain, words)  # everything is imported
    tracemalloc.start()
    found = CliRunner().invoke(explain, words, catch_exceptions=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.output.splitlines()[0 if ended else 1].startswith(f"{last.case.id} in {last.dtype}, honest")
    assert f"{last.check}: fail\n  out of line" in found.output
    assert peak < 2 << 20, "all of them take six millions"


def test_a_report_that_was_indented_anew_is_read(assignment: Assignment, tmp_path: Path) -> None:
    assignment = replace(assignment, tasks=assignment.tasks[:50])
    ledger = ledger_of(assignment, tmp_path)
    ledger.add(judged(assignment.tasks[0], 1))
    ledger.close()
    before, path = read_report(tmp_path), tmp_path / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert read_report(tmp_path) == before
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_report(tmp_path) == before


@pytest.mark.release
def test_tensors_of_observations_do_not_stay_in_memory(assignment: Assignment) -> None:
    small = [t for t in assignment.tasks if t.check == "stages" and t.dtype == "float32" and t.case.layer.d_model < 64]
    manifest, observations = read_golden_manifest(), Observations()
    tracemalloc.start()
    before, count = tracemalloc.get_traced_memory()[0], 0
    for task in small[:20]:
        expected = read_golden(task.case, manifest, constants())
        answers = {
            name: np.zeros(tensor.shape, np.float32)
            for name, tensor in expected.tensors.items()
            if name in task.tensors
        }
        record = not_run(task).model_copy(update={"outcome": Outcome.PASS})
        answer = UnjudgedAnswer(task, lambda case: read_golden(case, manifest, constants()), answers, 0.0)
        observations.see(answer, answers, record)
        count += 1
        del expected, answers, answer
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000 * count, grown / count  # the tensors of one have a hundred thousand bytes
    seen = observations.of("float32")
    assert {each.case.id for each in seen} == {task.case.id for task in small[:20]}
    assert not any(whole.any() for each in seen for whole in each.whole.values())
    observations.forget()
    assert observations.of("float32") == []
