"""A script of ONNX Runtime alone: the model that an exporter writes, its inputs, and the session."""

import numpy as np

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import Export
from encoder_conformance.spec.axes import Array
from encoder_conformance.subjects.starting import open_session
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.marshalling import CONTENT

_LARGEST = 4 << 20
"""Bytes of a model in a script."""


def exported(task: Task, ready: Ready) -> bytes:
    """The file that the implementation deploys, with the case's parameters. Raises InputError if there is none."""
    where = f"{ready.implementation.name} {task.case.id}"
    if task.case.situation.mask.bias is not None:
        raise InputError("has a bias of the scores, which no deployed model takes", where=where)
    parameters = {name: value.astype(task.format.numpy) for name, value in task.case.parameters().items()}
    with open_session(ready) as (session, _):
        answer = session.deploy(Export(layer=task.case.layer, dtype=task.dtype, mask="full"), parameters)
    if isinstance(answer, Failure):
        raise InputError(f"cannot be exported: {answer.message}", where=where)
    model = answer["file"].tobytes()
    if len(model) > _LARGEST:
        hint = "name a case of a smaller layer"
        raise InputError(f"its model has {len(model) / 2**20:.0f} MiB, too much for a script", where=where, hint=hint)
    return model


def inputs(task: Task) -> Tensors:
    """x [B, S, D], or token ids [B, S], mask [B, H, S, S] and valid [B, S], as a deployed model takes them."""
    case = task.case
    B, S, _ = case.x_shape
    every = B, case.layer.attention.num_heads, S, S
    mask = case.mask()
    allowed = np.broadcast_to(np.True_ if mask is None else mask, every)
    return {"x": _x(task), "mask": np.ascontiguousarray(allowed), "valid": case.valid_keys()}


def _x(task: Task) -> Array:
    case = task.case
    if case.layer.embedding is not None:
        return case.ids()
    x = case.x()
    if (content := case.situation.input.padding) != "as_drawn":
        x = np.where(case.valid()[:, :, None], x, CONTENT[content])
    return x.astype(task.format.numpy)
