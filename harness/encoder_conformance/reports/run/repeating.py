"""The command that repeats a part of a run."""

import shlex
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Record, Report
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.protocol.answers import Answers, Sampled, values_at
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.outcome import Outcome


def repeat_command(report: Report, implementation: str, case: str, dtype: str) -> str:
    """The command that asks for a case again: the run's arguments, narrowed to this implementation, case and dtype.

    It always names the number of threads, since an implementation that runs alone would get more by default.
    """
    if report.arguments[:1] not in (("run",), ("versions",)):  # `judge` and `check` have all in their own arguments
        return shlex.join(["conform", *report.arguments])
    command = ["conform", "run", "--impl", _implementation_argument(report, implementation)]
    command += ["--case", case, "--dtype", dtype]
    arguments = report.arguments
    if arguments[0] == "versions":  # the environment was this version's own
        interpreter = next(each.command[0] for each in report.implementations if each.name == implementation)
        command += ["--python", f"{implementation.partition(':')[0]}={interpreter}"]
    for option in ("--layer", "--device", "--python", "--memory"):
        command += [word for i, word in enumerate(arguments) if word == option or (i and arguments[i - 1] == option)]
        command += [word for word in arguments if word.startswith(f"{option}=")]
    command += ["--isolate"] * report.is_isolated(implementation)
    if report.environment.seed:
        command += ["--seed", str(report.environment.seed)]
    return shlex.join([*command, "--threads", str(report.environment.threads_per_worker)])


def reproduce_command(report: Report, implementation: str, case: str, dtype: str | None) -> str:
    """The command that writes a failing case as a script of the framework alone. `case` may be a pattern."""
    command = ["conform", "reproduce", case, "--impl", _implementation_argument(report, implementation)]
    command += ["--isolate"] * report.is_isolated(implementation)
    return shlex.join([*command, *(["--dtype", dtype] if dtype else [])])


def _implementation_argument(report: Report, implementation: str) -> str:
    """The implementation as in the run's arguments: a path, if its folder is outside the project's own."""
    name, colon, choices = implementation.partition(":")
    for argument in report.arguments:
        folder, _ = parse_variant(argument)
        if Path(folder).name == name and "/" in folder:
            return folder + colon + choices
    return implementation


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
