"""What a refusal check gives that is wrong, and whether it was refused as it should be (clauses X-*, rule J-6)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.reason import Kind
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.wire.messages import Refusal
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.marshalling import encode_inputs
from encoder_conformance.worker.session import Session

UNKNOWN_ACTIVATION = "swish9"
BEGINS: dict[Kind, str] = {
    "after-refusal": "after refusing what is wrong: ",
    "beside-refusal": "what is wrong is refused; what is right comes out wrong, before and after: ",
}
"""How the message of a refusal check begins that fails by the numbers of the valid request."""


@dataclass(frozen=True)
class Flawed:
    """One wrong request: a layer, or tensors to run. `given` says what is wrong, after "accepted" and "given"; the
    error is of the category `due` and names `named`."""

    given: str
    due: Refusal
    layer: dict[str, Any] | None = None
    tensors: Tensors | None = None
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """The output of the valid request, asked after every invalid one was refused. `kind` is of its failure, if it
    fails: "beside-refusal" where it is the same to the bit as before, and "after-refusal" where it is not."""

    output: Tensors
    kind: Kind


def refused(session: Session, task: Task, kinked_rows: np.ndarray[Any, Any]) -> Refused | Failure:
    """Put everything that is wrong, and before and after it what is right; else the first thing amiss."""
    right = replace(task, check="output")
    before = session.observe(right, kinked_rows)
    if isinstance(before, Failure):
        return replace(before, message=f"before anything wrong was given: {before.message}")
    flaw, given = task.case.situation.flaw, []
    for flawed in flawed_requests(task):
        if amiss := _amiss(flawed, _put(session, task, flawed)):
            return replace(amiss, message=f"{flaw}: {amiss.message}")
        given.append(flawed.given)
    after = session.observe(right, kinked_rows)
    if isinstance(after, Failure):
        return replace(after, message=f"{flaw}: after refusing {' and '.join(given)}: {after.message}")
    return Refused(after, "beside-refusal" if _same(before, after) else "after-refusal")


def _same(before: Tensors, after: Tensors) -> bool:
    return before.keys() == after.keys() and all(
        np.array_equal(before[name], after[name], equal_nan=True) for name in before
    )


def flawed_requests(task: Task) -> Iterator[Flawed]:
    """Everything wrong that the flaw of the task's situation stands for."""
    layer, (B, S, D) = task.case.layer.model_dump(mode="json"), task.case.x_shape
    match task.case.situation.flaw:
        case "num_heads":
            heads = next(n for n in range(layer["attention"]["num_heads"] + 1, D + 2) if D % n)
            layer["attention"]["num_heads"] = heads
            said = f"num_heads = {heads}, where d_model is {D}"
            yield Flawed(said, "configuration", layer=layer, named=(str(heads), str(D)))
        case "activation":
            layer["feed_forward"]["activation"] = UNKNOWN_ACTIVATION
            said = f"activation {UNKNOWN_ACTIVATION}, which no layer knows"
            yield Flawed(said, "configuration", layer=layer, named=(UNKNOWN_ACTIVATION,))
        case "feature_size":
            x = encode_inputs(task)["x"]
            more = np.concatenate([x, x[..., -1:]], axis=-1)
            for wrong in (more, x[..., :1]) if D > 1 else (more,):
                size = wrong.shape[-1]
                said = f"x of {size} feature{'s' * (size > 1)}, where d_model is {D}"
                yield Flawed(said, "shape", tensors={**encode_inputs(task), "x": np.ascontiguousarray(wrong)})
        case "mask_shape":
            tensors = encode_inputs(task)
            x, mask = tensors["x"], tensors["padding_mask"]
            longer = np.concatenate([mask, mask[..., -1:]], axis=-1)
            said = f"a mask of {S + 1} keys, where x has {S} positions"
            yield Flawed(said, "shape", tensors={**tensors, "padding_mask": longer})
            yield Flawed(f"a mask of {B} items, where x has 1", "shape", tensors={**tensors, "x": x[:1]})
        case "input_dtype":
            other = "float64" if task.dtype == "float32" else "float32"
            tensors = encode_inputs(task)
            x = tensors["x"].astype(FORMATS[other].numpy)
            yield Flawed(f"x in {other}, where the layer is {task.dtype}", "dtype", tensors={**tensors, "x": x})


def _put(session: Session, task: Task, flawed: Flawed) -> Tensors | Failure:
    if flawed.layer is not None:
        return session.build_flawed(task, flawed.layer)
    return session.run_flawed(task, flawed.tensors or {})


def _amiss(flawed: Flawed, answer: Tensors | Failure) -> Failure | None:
    """What is wrong with the answer to a wrong request; None if it is refused as it should be."""
    if not isinstance(answer, Failure):
        return Failure(Outcome.FAIL, f"accepted {flawed.given}")
    if answer.outcome is not Outcome.ERROR:  # its process ended, or it took too long
        return Failure(answer.outcome, f"given {flawed.given}, {answer.message}")
    if answer.refused != flawed.due:
        how = f"refused it as {answer.refused}" if answer.refused else "gave an error of no category"
        text = f"given {flawed.given}, {how} instead of refusing it as {flawed.due}: {answer.message}"
        return Failure(Outcome.FAIL, text)
    missing = [name for name in flawed.named if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", answer.message)]
    if missing:
        text = f"given {flawed.given}, it gave an error that does not name {' and '.join(missing)}: {answer.message}"
        return Failure(Outcome.FAIL, text)
    return None
