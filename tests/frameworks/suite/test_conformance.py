"""The conformance suite as pytest items: each case in each dtype, named layer/situation.

pytest tests/frameworks/suite --impl pytorch
pytest tests/frameworks/suite --impl path/to/folder -k padding-right
pytest tests/frameworks/suite --impl jax_pure --level core
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.oracle.golden.store import check_ids, read_golden, read_golden_manifest
from encoder_conformance.platform.recent import Recent
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, every_case, load, published_specification
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.subjects.plan import asked_of, plan, select
from encoder_conformance.worker.session import Session

Tasks = list[Task]


def _ready(config: pytest.Config) -> Ready:
    named = config.getoption("--impl")
    if not named:
        raise pytest.UsageError("tests/frameworks/suite judges one implementation: give --impl NAME or --impl FOLDER")
    folder, implementation = find_implementation(named)
    found = resolve(implementation, folder, {})
    if isinstance(found, Missing):
        raise pytest.UsageError(f"{named}: {found.reason}; {found.hint}")
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a case and dtype, and one of two layers in turns. What the manifest opts out of as a whole is no item:
    neither passed nor skipped."""
    check_ids(load().with_golden, read_golden_manifest())
    implementation = _ready(metafunc.config).implementation
    asked = {case.id: case for case in asked_of(implementation, [*every_case().values()])}
    tasks = plan(implementation, select(asked, (), metafunc.config.getoption("--level")))
    if "turns" in metafunc.fixturenames:
        found = _in_turns(tasks)
        metafunc.parametrize("turns", [found] if found else [], ids=["-".join(map(_layer_of, found))] if found else [])
        return
    grouped = {
        f"{dtype}-{case}": list(group)
        for (dtype, case), group in itertools.groupby(tasks, key=lambda task: (task.dtype, task.case.id))
    }
    asked = {name: group for name, group in grouped.items() if any(task.opt_out is None for task in group)}
    assert asked, "the manifest opts out of every case"
    # Side by side, each process takes whole layers: one is built, exported or compiled in one of them alone.
    items = [pytest.param(group, marks=pytest.mark.xdist_group(group[0].case.layer.layer)) for group in asked.values()]
    metafunc.parametrize("tasks", items, ids=asked.keys())


def _layer_of(task: Task) -> str:
    return task.case.layer.layer


def _in_turns(tasks: Tasks) -> Tasks:
    """The check that looks deepest, of the two smallest layers in float32 and of the first again; none where it is
    asked of one layer alone."""
    deepest: dict[str, Task] = {}
    for check in ("stages", "weights", "output"):
        for task in tasks:
            if task.opt_out is None and task.dtype == "float32" and task.check == check:
                deepest.setdefault(_layer_of(task), task)
    layers = [task for task in deepest.values() if task.check == next(iter(deepest.values())).check]
    layers = sorted(layers, key=lambda task: parameter_count(task.case.layer))[:2]
    return [*layers, layers[0]] if len(layers) == 2 else []


@pytest.fixture(scope="session")
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    log: Path = tmp_path_factory.mktemp("worker") / "stderr.log"
    session = Session(_ready(request.config), "cpu", threads=1, log=log)
    yield session
    session.close()


def test_conforms(tasks: Tasks, session: Session) -> None:
    records = [_asked(session, task) for task in tasks]
    wrong = [f"{r.check}: {r.outcome.value}: {r.message}" for r in records if r.outcome not in EXPECTED]
    case, dtype = tasks[0].case.id, tasks[0].dtype
    repeat = f"conform run --impl {session.ready.implementation.name} --case {case} --dtype {dtype}"
    assert not wrong, "\n".join([*wrong, f"repeat: {repeat}"])
    assert any(record.outcome in (Outcome.PASS, Outcome.DEVIATES) for record in records)


def test_a_layer_built_again_after_another_is_itself(turns: Tasks, session: Session) -> None:
    """Above, layers are asked one after the other. A run takes them in turns, and an adapter may keep what it made."""
    records = [_asked(session, task) for task in turns]
    wrong = [f"{r.case} {r.check}: {r.outcome.value}: {r.message}" for r in records if r.outcome not in EXPECTED]
    assert not wrong, "\n".join(wrong)


def _asked(session: Session, task: Task) -> Record:
    return judged(put(session, task, _golden_of))


def _golden_of(case: Case) -> Expected:
    """What is expected: frozen, or for a published layer computed, once for all checks and formats."""
    if case.id not in published_specification().cases:
        return read_golden(case, read_golden_manifest(), constants())
    return _COMPUTED.get(case.id, lambda: compute(case, constants()))


_COMPUTED = Recent[Expected](8)
