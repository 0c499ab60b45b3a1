"""Layers as large as are published: what is sent and answered is never whole in the parent, and judged all the same."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.special  # noqa: F401  # else a statistic imports it, and it is counted
from products import of_a_release

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import DtypeName, read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.session import Failure, Session

CASES = load().cases
MEGABYTES = 1e6
WEIGHT = "feed_forward.output.weight"
"""Of a large layer: [d_ff, d_model], the last parameter but one."""


def golden(case: Case) -> Expected:
    return read_golden(case, read_golden_manifest(), constants())


def tasks(folder: Path, case: str, dtype: DtypeName, *checks: str) -> tuple[Ready, list[Task]]:
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    return ready, [task for task in plan(ready.implementation, [CASES[case]], (dtype,)) if task.check in checks]


@contextmanager
def session(ready: Ready, below: Path) -> Iterator[Session]:
    made = Session(ready, "cpu", 1, below / "worker.log")
    try:
        yield made
    finally:
        made.close()


def asked(ready: Ready, task: Task, below: Path) -> Record:
    """The record of one check that is put as a run puts it."""
    with session(ready, below) as one:
        return judged(put(one, task, golden))


@pytest.mark.parametrize(
    ("case", "check", "at_least"),
    [
        of_a_release("gpt2-medium/sized-no-mask", "stages", 100),
        ("post-relu-512/no-mask", "gradients", 25),
        ("post-relu-512/initialisation", "initialisation", 25),
    ],
)
def test_the_parent_never_holds_a_large_layer(
    fake: Callable, tmp_path: Path, case: str, check: str, at_least: float
) -> None:
    """`at_least`: what its parameters take, in megabytes."""
    ready, [task] = tasks(fake("large"), case, "float64", check)
    assert sum(value.nbytes for value in CASES[case].parameters().values()) > at_least * MEGABYTES
    with session(ready, tmp_path) as one:
        assert one.worker.start() is None
        tracemalloc.start()
        try:
            answer = put(one, task, golden)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    record = judged(answer)
    assert record.outcome is Outcome.PASS, record.message
    # A part is half a megabyte; of initialisation a weight of 8 MB is judged whole.
    assert peak < (22 if check == "initialisation" else 8) * MEGABYTES


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("changed.reshape(-1)[-1] = np.nextafter(changed.reshape(-1)[-1], 1)", f"{WEIGHT} came back with other values"),
        ("changed[changed == 0] = -0.0", f"{WEIGHT} came back with other values"),
        ("changed = changed.T", f"{WEIGHT} came back as float32 [512, 2048] instead of float32 [2048, 512]"),
        ("changed = changed.astype(np.float64)", f"{WEIGHT} came back as float64"),
        ("changed = changed[0, 0]", f"{WEIGHT} came back as float32 []"),
    ],
)
def test_a_large_layer_that_does_not_hold_what_it_was_sent(fake: Callable, tmp_path: Path, lie: str, said: str) -> None:
    body = f"""
    def build(self, layer, parameters, dtype):
        held = super().build(layer, parameters, dtype)
        changed = held["{WEIGHT}"].copy()
        {lie}
        return {{**held, "{WEIGHT}": changed}}
    """
    ready, [task] = tasks(fake("forgetful", body), "post-relu-512/single-item", "float32", "output")
    record = asked(ready, task, tmp_path)
    assert record.outcome is Outcome.ERROR
    assert said in record.message


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("found", ""),
        (f"{{**found, '{WEIGHT}': found['{WEIGHT}'] * np.float32(1.001)}}", f"{WEIGHT}: rms"),
        (f"{{**found, '{WEIGHT}': found['{WEIGHT}'].T}}", f"{WEIGHT}: shape [512, 2048] instead of [2048, 512]"),
        (f"{{**found, '{WEIGHT}': found['{WEIGHT}'].astype('f8')}}", f"{WEIGHT}: dtype float64 instead of float32"),
        (f"{{**found, 'more': found['{WEIGHT}']}}", "wrong names: not asked for more"),
        (f"{{name: one for name, one in found.items() if name != '{WEIGHT}'}}", f"wrong names: missing {WEIGHT}"),
    ],
    ids=["right", "scaled", "transposed", "float64", "more", "less"],
)
def test_large_gradients_are_judged_as_if_they_were_whole(fake: Callable, tmp_path: Path, lie: str, said: str) -> None:
    body = f"""
    def gradients(self, x, masks, run, cotangent):
        found = super().gradients(x, masks, run, cotangent)
        return {lie}
    """
    ready, [task] = tasks(fake("large", body), "post-relu-512/single-item", "float32", "gradients")
    with session(ready, tmp_path) as one:
        in_parts = judged(put(one, task, golden))
        whole = judged(put(one, task, golden, whole=True))
    apart = {"seconds": 0.0, "digest": None}  # a digest is of the values that are kept
    assert in_parts.model_copy(update=apart) == whole.model_copy(update=apart)
    assert said in in_parts.message
    assert in_parts.outcome is (Outcome.ERROR if "names" in said else Outcome.FAIL if said else Outcome.PASS)
    assert len(in_parts.tensors) == (0 if in_parts.outcome is Outcome.ERROR else len(task.tensors))


def test_smoke_has_the_parameters_of_a_large_layer_whole(fake: Callable, tmp_path: Path) -> None:
    ready, [task] = tasks(fake("large"), "post-relu-512/single-item", "float32", "output")
    with session(ready, tmp_path) as one:
        found = one.parameters(task)
    assert not isinstance(found, Failure)
    due = task.case.parameters()
    assert found.sent.keys() == found.held.keys() == due.keys()
    for name, value in due.items():
        assert np.array_equal(found.sent[name], value)
        assert np.array_equal(found.held[name], value)


def test_large_parameters_are_moved_into_the_regime_of_their_case(fake: Callable, tmp_path: Path) -> None:
    """Large logits: what is drawn in parts is multiplied by the situation's powers of two."""
    ready, [task] = tasks(fake("large"), "post-relu-512/large-logits", "float32", "output")
    assert task.case.situation.parameter_exponents
    assert asked(ready, task, tmp_path).outcome is Outcome.PASS
    again = replace(task, case=replace(task.case, seed=1))
    with session(ready, tmp_path) as one:
        found = one.parameters(again)
    assert not isinstance(found, Failure)
    assert all(np.array_equal(found.held[name], value) for name, value in again.case.parameters().items())
