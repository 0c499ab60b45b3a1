"""`conform parameters`: the parameters of a live layer: shape, count, trainability and gradient norm of each."""

import os
from dataclasses import asdict, dataclass

import click
import numpy as np

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.layer_selection import describe_case, refuse_too_large
from encoder_conformance.commands.options import print_json
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import Unanswered
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.reports.run.terminal import show_line
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.starting import find_task, open_session
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.parameters import round_trip_error

_SEED = 0


@dataclass(frozen=True)
class ParameterRow:
    """One parameter as the live layer returned it, in the specification's name and orientation.

    `own`: the implementation's name for it, "" if unknown. `trainable`: None if unknown. `gradient`: the Euclidean norm
    of the gradient by it, None if gradients were not requested.
    """

    name: str
    own: str
    shape: tuple[int, ...]
    numbers: int
    trainable: bool | None
    gradient: float | None


@dataclass(frozen=True)
class Parameters:
    """All parameters of a layer.

    `total` and `trainable` count elements; `trainable` is None if unknown, and `unsaid` then says why.
    `by_input`: the norm of the gradient by x, None if gradients were not requested or there is no x.
    """

    rows: list[ParameterRow]
    total: int
    trainable: int | None
    unsaid: str
    by_input: float | None
    versions: dict[str, str]


def read_parameters(ready: Ready, task: Task, threads: int, *, gradients: bool) -> Parameters:
    """Build the task's layer, and read its parameters, which are trainable, and with `gradients` the gradient norms.

    The gradients are those of sum(output · cotangent) at the task's case (B-2). Raises `Unanswered` if the worker fails
    or the layer does not return the parameters that it was sent.
    """
    with open_session(ready, threads) as session:
        built = session.parameters(task)
        if isinstance(built, Failure):
            raise Unanswered(f"{ready.implementation.name}: {built.message}")
        if problem := round_trip_error(built.sent, built.held):
            raise Unanswered(f"{ready.implementation.name}: {problem}")
        gradients_by_name = session.require(session.observe(task)) if gradients else {}
        initialised = session.initialise(task, _SEED)  # last, since it replaces the loaded parameters
        trained, unsaid = (None, initialised.message) if isinstance(initialised, Failure) else (set(initialised[1]), "")
        versions = session.versions
    rows = []
    for name in built.sent:
        value, trainable = built.held[name], None if trained is None else name in trained
        gradient = _gradient_norm(gradients_by_name, name)
        rows.append(ParameterRow(name, built.own.get(name, ""), value.shape, value.size, trainable, gradient))
    trainable_count = None if trained is None else sum(row.numbers for row in rows if row.trainable)
    by_input = _gradient_norm(gradients_by_name, "x")
    return Parameters(rows, sum(row.numbers for row in rows), trainable_count, unsaid, by_input, versions)


def _gradient_norm(gradients: Tensors, name: str) -> float | None:
    return float(np.linalg.norm(gradients[name].astype(np.float64))) if name in gradients else None


_EXAMPLES = """
\b
Examples:
  conform parameters --impl pytorch --layer pre-gelu-512
  conform parameters --impl pytorch --gradients --batch 2 --sequence 10
  conform parameters --impl ./my_backend --d-model 768 --json
"""


@click.command(epilog=_EXAMPLES)
@looking.impl_option
@looking.layer_options
@looking.batch_option
@looking.sequence_option
@looking.dtype_option
@click.option(
    "--gradients", is_flag=True, help="Also show the norm of the gradient by the input and by each parameter."
)
@looking.json_option
def parameters(
    layer: looking.LayerOptions,
    impl: str | None,
    batch: int | None,
    sequence: int | None,
    dtype: DtypeName,
    gradients: bool,
    as_json: bool,
) -> None:
    """Show the parameters of a live layer: the name and shape of each, and the total and trainable counts.

    The shapes are those that the live layer returned. --batch and --sequence set the input for --gradients; the
    gradients are of the sum of output times a drawn cotangent.
    """
    case = layer.case(batch, sequence)
    check: Check = "gradients" if gradients else "output"
    ready, task = find_task(impl, case, dtype, check)
    refuse_too_large(case.expected_shapes("gradients").values(), case.situation.batch, dtype)
    name = ready.implementation.name
    with looking.at_work(f"running {name}"):
        result = read_parameters(ready, task, os.cpu_count() or 1, gradients=gradients)
    if as_json:
        print_json({"implementation": name, "dtype": dtype, "case": describe_case(case), **asdict(result)})
    else:
        holder = f"{name} ({looking.versions(result.versions)})"
        _show(case, f"{describe_case(case)}, {dtype}, as {holder} holds them", result)


def _show(case: Case, title: str, result: Parameters) -> None:
    screen = looking.heading(title)
    with_gradients = any(row.gradient is not None for row in result.rows)
    numbers = ("numbers", "trainable", *(["gradient's norm"] if with_gradients else []))
    table = looking.table(("parameter", "shape"), numbers, ["its own name"])
    if result.by_input is not None:
        table.add_row("x, the input", str(list(case.x_shape)), "", "", f"{result.by_input:.4g}", "")
    for row in result.rows:
        trainable = "" if row.trainable is None else "yes" if row.trainable else "no"
        norm = [f"{row.gradient:.4g}" if row.gradient is not None else ""] if with_gradients else []
        table.add_row(row.name, str(list(row.shape)), f"{row.numbers:,}", trainable, *norm, row.own)
    screen.print(table)
    trainable = "how many are trainable is unknown" if result.trainable is None else f"{result.trainable:,} trainable"
    show_line(screen, f"{result.total:,} parameters in {len(result.rows)} tensors, {trainable}")
    if result.unsaid:
        show_line(screen, f"(initialising them failed: {result.unsaid})")
