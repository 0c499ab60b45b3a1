"""The parameters of a live layer: the name, shape and count of each, whether it is trained, and its gradient's norm."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.errors import Unanswered
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.inspect.session import asking
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.round_trip import expected_parameters, round_trip_error

_SEED = 0
_NO_ROWS = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Row:
    """One parameter as the live layer gave it back, in the specification's name and orientation.

    `own`: what the implementation calls it, "" if it does not say. `trainable`: None if it does not say. `gradient`:
    the Euclidean norm of the gradient by it, None where that was not asked for.
    """

    name: str
    own: str
    shape: tuple[int, ...]
    numbers: int
    trainable: bool | None
    gradient: float | None


@dataclass(frozen=True)
class Parameters:
    """`trainable`: how many numbers are trained, or None, and `unsaid` why.

    `by_input`: the norm of the gradient by x, None where that was not asked for or there is no x.
    """

    rows: list[Row]
    total: int
    trainable: int | None
    unsaid: str
    by_input: float | None
    versions: dict[str, str]


def parameters(ready: Ready, task: Task, threads: int, *, gradients: bool) -> Parameters:
    """Build the task's layer, and ask what it holds, what of that is trained, and with `gradients` their norms.

    The gradients are those of sum(output · cotangent) at the task's case (B-2). Raises `Unanswered`, also where the
    layer does not hold the parameters that it was sent.
    """
    with asking(ready, threads) as (session, answered):
        built = session.parameters(task)
        if isinstance(built, Failure):
            raise Unanswered(f"{ready.implementation.name}: {built.message}")
        due = expected_parameters(built.sent, built.held, ready.implementation.capabilities.missing_parameters)
        if wrong := round_trip_error(due, built.held):
            raise Unanswered(f"{ready.implementation.name}: {wrong}")
        by = answered(session.observe(task, _NO_ROWS)) if gradients else {}
        fresh = session.initialise(task, _SEED)  # last: what was loaded is gone
        trained, unsaid = (None, fresh.message) if isinstance(fresh, Failure) else (set(fresh[1]), "")
        versions = session.versions
    rows = [
        Row(
            name,
            built.own.get(name, ""),
            value.shape,
            value.size,
            None if trained is None else name in trained,
            _norm(by, name),
        )
        for name, value in ((name, built.held[name]) for name in due)
    ]
    count = None if trained is None else sum(row.numbers for row in rows if row.trainable)
    return Parameters(rows, sum(row.numbers for row in rows), count, unsaid, _norm(by, "x"), versions)


def _norm(gradients: Tensors, name: str) -> float | None:
    return float(np.linalg.norm(gradients[name].astype(np.float64))) if name in gradients else None
