"""Judges gradients in training: they are those of the output, with the elements that it dropped (A-1, rule Q-5)."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.training.directional import FAR, nearest_change
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import AsGiven, Build, Run
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.size import is_large
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_BATCH, _SEQUENCE = 2, 5
_SEED = 1
_GIVEN = AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False)


def put_gradients(session: Session, task: Task) -> str | Failure:
    """What is wrong with the gradients in training; "" where nothing is, and where they are not asked."""
    if task.dtype != _asked_in(task) or task.case.layer.embedding is not None or is_large(task.case.layer):
        return ""
    try:
        return _Trained(session, task).problem()
    except _Unanswered as unanswered:
        return unanswered.failure


def _asked_in(task: Task) -> DtypeName | None:
    """The widest format in which the implementation gives gradients: the rounding of others hides a small rate."""
    formats: tuple[DtypeName, ...] = ("float64", "float32")
    return next((each for each in formats if not task.implementation.opt_out(task.case, each, "gradients")), None)


class _Unanswered(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Trained:
    """The task's layer in training, with one seed. Each request builds it anew where parameters moved."""

    def __init__(self, session: Session, task: Task) -> None:
        self.session, self.task, self.builds = session, task, 0
        layer, draw, dtype = task.case.layer, np.random.default_rng(6), task.format.numpy
        shape = _BATCH, _SEQUENCE, layer.d_model
        x, self.cotangent = (draw.normal(size=shape).astype(dtype) for _ in range(2))
        held = {name: value.astype(dtype) for name, value in layer_parameters(layer, {}).items()}
        self.values = {"x": x, **held}

    def problem(self) -> str:
        """The sentence; "" where there is none, and where one seed does not draw the same twice."""
        gradients = self.asked(self.values, "gradients")
        found = {name: value for name, value in gradients.items() if name in self.values}
        change = nearest_change(self.values, found, self.loss, self.task.dtype)
        if change.distance <= FAR[self.task.dtype]:
            return ""
        one, other = (self.asked(self.values, "output")["output"] for _ in range(2))
        if not np.array_equal(one, other):
            return ""
        return f"with dropout on, the gradient is not that of the mask that the output shows: {change}"

    def loss(self, moved: Mapping[str, Array]) -> float:
        return float(np.sum(self.asked(moved, "output")["output"].astype(np.float64) * self.cotangent))

    def asked(self, values: Mapping[str, Array], check: Check) -> Tensors:
        """The answer to one request. Raises _Unanswered."""
        self.builds += 1
        parameters = {name: value for name, value in values.items() if name != "x"}
        tensors = {"x": values["x"], **({"cotangent": self.cotangent} if check == "gradients" else {})}
        key = "dropout gradients", self.task.dtype, self.task.case.layer.layer, self.builds
        build = Build(layer=self.task.case.layer, dtype=self.task.dtype)
        run = Run(check=check, mode="train", given=_GIVEN, seed=_SEED)
        size = sum(value.nbytes for value in values.values())
        answer = self.session.observe_made(key, build, parameters, run, tensors, size)
        if isinstance(answer, Failure):
            raise _Unanswered(replace(answer, message=f"mode train: {check}: {answer.message}"))
        return answer
