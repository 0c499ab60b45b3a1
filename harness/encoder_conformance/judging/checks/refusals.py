"""Sends invalid requests, and judges whether they are refused as specified (clauses X-*, rule J-6)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import Refusal
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.marshalling import encode_inputs
from encoder_conformance.worker.session import Session

UNKNOWN_ACTIVATION = "swish9"
BEGINS: dict[Kind, str] = {
    "after-refusal": "after refusing what is wrong: ",
    "beside-refusal": "what is wrong is refused; what is right comes out wrong, before and after: ",
}
"""Kind of failure → prefix of the message of a refusal check whose valid request gives wrong numbers."""


@dataclass(frozen=True)
class Flawed:
    """One invalid request: a layer to build, or tensors to run.

    `description` says what is invalid and follows "accepted" or "given" in messages. The error must be of the category
    `category` and name every string in `must_name`.
    """

    description: str
    category: Refusal
    layer: dict[str, Any] | None = None
    tensors: Tensors | None = None
    must_name: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """The output of the valid request, run again after every invalid one was refused.

    `kind` applies if that output fails: "beside-refusal" if it is bit for bit the same as before the invalid requests,
    "after-refusal" if it is not.
    """

    output: Tensors
    kind: Kind


def refused(session: Session, task: Task) -> Refused | Failure:
    """Send every invalid request, and the valid one before and after them. Returns the first failure, if any."""
    valid_task = replace(task, check="output")
    before = session.observe(valid_task)
    if isinstance(before, Failure):
        return replace(before, message=f"before anything wrong was given: {before.message}")
    flaw, descriptions = task.case.situation.flaw, []
    for flawed in flawed_requests(task):
        if problem := _find_problem(flawed, _send(session, task, flawed)):
            return replace(problem, message=f"{flaw}: {problem.message}")
        descriptions.append(flawed.description)
    after = session.observe(valid_task)
    if isinstance(after, Failure):
        return replace(after, message=f"{flaw}: after refusing {' and '.join(descriptions)}: {after.message}")
    return Refused(after, "beside-refusal" if _bitwise_equal(before, after) else "after-refusal")


def _bitwise_equal(before: Tensors, after: Tensors) -> bool:
    return before.keys() == after.keys() and all(
        np.array_equal(before[name], after[name], equal_nan=True) for name in before
    )


def flawed_requests(task: Task) -> Iterator[Flawed]:
    """Every invalid request of the flaw in the task's situation."""
    layer, (B, S, D) = task.case.layer.model_dump(mode="json"), task.case.x_shape
    tensors = encode_inputs(task)
    match task.case.situation.flaw:
        case "num_heads":
            heads = next(n for n in range(layer["attention"]["num_heads"] + 1, D + 2) if D % n)
            layer["attention"]["num_heads"] = heads
            description = f"num_heads = {heads}, where d_model is {D}"
            yield Flawed(description, "configuration", layer=layer, must_name=(str(heads), str(D)))
        case "activation":
            layer["feed_forward"]["activation"] = UNKNOWN_ACTIVATION
            description = f"activation {UNKNOWN_ACTIVATION}, which no layer knows"
            yield Flawed(description, "configuration", layer=layer, must_name=(UNKNOWN_ACTIVATION,))
        case "feature_size":
            x = tensors["x"]
            too_many = np.concatenate([x, x[..., -1:]], axis=-1)
            for wrong_x in (too_many, x[..., :1]) if D > 1 else (too_many,):
                size = wrong_x.shape[-1]
                description = f"x of {size} feature{'s' * (size > 1)}, where d_model is {D}"
                yield Flawed(description, "shape", tensors={**tensors, "x": np.ascontiguousarray(wrong_x)})
        case "mask_shape":
            x, mask = tensors["x"], tensors["padding_mask"]
            longer = np.concatenate([mask, mask[..., -1:]], axis=-1)
            description = f"a mask of {S + 1} keys, where x has {S} positions"
            yield Flawed(description, "shape", tensors={**tensors, "padding_mask": longer})
            yield Flawed(f"a mask of {B} items, where x has 1", "shape", tensors={**tensors, "x": x[:1]})
        case "input_dtype":
            other = "float64" if task.dtype == "float32" else "float32"
            x = tensors["x"].astype(FORMATS[other].numpy)
            yield Flawed(f"x in {other}, where the layer is {task.dtype}", "dtype", tensors={**tensors, "x": x})


def _send(session: Session, task: Task, flawed: Flawed) -> Tensors | Failure:
    if flawed.layer is not None:
        return session.build_flawed(task, flawed.layer)
    return session.run_flawed(task, flawed.tensors or {})


def _find_problem(flawed: Flawed, answer: Tensors | Failure) -> Failure | None:
    """The failure in the answer to an invalid request; None if the request is refused as specified."""
    if not isinstance(answer, Failure):
        return Failure(Outcome.FAIL, f"accepted {flawed.description}")
    if answer.outcome is not Outcome.ERROR:  # its process ended, or it took too long
        return Failure(answer.outcome, f"given {flawed.description}, {answer.message}")
    if answer.refused != flawed.category:
        actual = f"refused it as {answer.refused}" if answer.refused else "gave an error of no category"
        text = f"given {flawed.description}, {actual} instead of refusing it as {flawed.category}: {answer.message}"
        return Failure(Outcome.FAIL, text)
    missing = [name for name in flawed.must_name if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer.message)]
    if missing:
        text = (
            f"given {flawed.description}, it gave an error that does not name {' and '.join(missing)}: {answer.message}"
        )
        return Failure(Outcome.FAIL, text)
    return None
