"""The parameters of a live layer: name, shape, count, trainability and gradient norm of each."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import Unanswered
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.subjects.starting import open_session
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


def parameters(ready: Ready, task: Task, threads: int, *, gradients: bool) -> Parameters:
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
    rows = [
        ParameterRow(
            name,
            built.own.get(name, ""),
            value.shape,
            value.size,
            None if trained is None else name in trained,
            _gradient_norm(gradients_by_name, name),
        )
        for name, value in ((name, built.held[name]) for name in built.sent)
    ]
    trainable_count = None if trained is None else sum(row.numbers for row in rows if row.trainable)
    return Parameters(
        rows,
        sum(row.numbers for row in rows),
        trainable_count,
        unsaid,
        _gradient_norm(gradients_by_name, "x"),
        versions,
    )


def _gradient_norm(gradients: Tensors, name: str) -> float | None:
    return float(np.linalg.norm(gradients[name].astype(np.float64))) if name in gradients else None
