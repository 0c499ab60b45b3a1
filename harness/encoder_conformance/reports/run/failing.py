"""Keeps the tensors of checks that fail, where a run is asked to: what was answered, and what was expected."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.protocol.answers import Answers, Sampled, values_at
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.outcome import Outcome

NAME = "failing"
"""The folder in that of the run. Below it lie IMPLEMENTATION/LAYER/SITUATION.DTYPE.CHECK.safetensors."""


class FailingTensors:
    """`keep` is called with every judged answer. `problem`: why a file could not be written; "" if all could."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.problem = folder / NAME, ""

    def keep(self, task: Task, expected: Expected, record: Record, answers: Answers) -> None:
        """Write the tensors of a check that fails: NAME as answered, expected.NAME in float64.

        Of a tensor that is compared in part both have the compared values alone, and positions.NAME says which: flat
        indices into it.
        """
        if record.outcome is not Outcome.FAIL:
            return
        kept: dict[str, Array] = {}
        for verdict in record.tensors:
            if verdict.conforms or (answer := answers.get(verdict.tensor)) is None:
                continue
            golden = expected.tensors.get(key(task.check, verdict.tensor))
            if golden is None or answer.shape != golden.shape:
                kept[verdict.tensor] = _stored(answer.values if isinstance(answer, Sampled) else answer)
                continue
            is_whole = golden.positions.size == int(np.prod(golden.shape, dtype=np.int64))
            shape = golden.shape if is_whole else golden.positions.shape
            kept[verdict.tensor] = _stored(values_at(answer, golden.positions)).reshape(shape)
            kept[f"expected.{verdict.tensor}"] = golden.golden.reshape(shape)
            if not is_whole:
                kept[f"positions.{verdict.tensor}"] = golden.positions
        if kept:
            self._write(task, kept)

    def _write(self, task: Task, kept: dict[str, Array]) -> None:
        layer, _, situation = task.case.id.partition("/")
        file = self._folder / task.implementation.name / layer / f"{situation}.{task.dtype}.{task.check}.safetensors"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file({name: np.ascontiguousarray(value) for name, value in kept.items()}, file)
        except OSError as error:
            self.problem = f"{file}: {error.strerror or error}"


def _stored(values: Array) -> Array:
    """Values in a dtype that every reader of safetensors has: bfloat16, which NumPy lacks, as float32, exactly."""
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values
