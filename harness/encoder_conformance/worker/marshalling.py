"""Encodes a case's inputs in the situation's format, and decodes the outputs (clauses S-2, M-8, M-9).

The harness itself uses one format: x and output [B, S, D], masks true where a query may attend to a key.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.answers import Sampled
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import AsGiven, Run
from encoder_conformance.protocol.streamed import Array, Sink
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.masking import Causal
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import InputFormat
from encoder_conformance.worker.failure import WorkerFailure

Positions = npt.NDArray[np.int64]
_WHOLE_UP_TO = 1 << 14
"""Tensors with at most this many elements are kept whole."""


class Sampling:
    """A `Receive` that samples large tensors while they are read. It declines small ones and those of a wrong shape."""

    def __init__(self, compared: Mapping[str, tuple[tuple[int, ...], Positions]]) -> None:
        """`compared`: name → expected shape and compared positions, flat and ascending."""
        self._compared = compared
        self.samples: dict[str, Sampled] = {}

    def __call__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        expected_shape, positions = self._compared.get(name, (None, None))
        if positions is None or expected_shape != shape or prod(shape) <= _WHOLE_UP_TO:
            return None
        values, read = np.empty(positions.size, dtype), 0
        self.samples[name] = Sampled(dtype, shape, positions, values)

        def take(part: Array) -> None:
            nonlocal read
            begin, end = np.searchsorted(positions, (read, read + part.size))
            values[begin:end] = part[positions[begin:end] - read]
            read += part.size

        return take


def run_request(task: Task, kinked_rows: Array) -> tuple[Run, Tensors]:
    """The `run` request of a task and its tensors. The cotangent is zero on `kinked_rows`, [n, 2] (B-2)."""
    case, tensors = task.case, encode_inputs(task)
    if task.check == "gradients":
        cotangent = case.cotangent(kinked_rows).astype(task.format.numpy)
        tensors["cotangent"] = in_layout(cotangent, case.situation.given)
    return Run(check=task.check, mode=case.situation.mode, given=given_as(case)), tensors


def given_as(case: Case) -> AsGiven:
    """The format of a case's inputs, as the messages carry it."""
    given = case.situation.given
    return AsGiven(
        layout=given.layout,
        masks=given.masks,
        causal_flag=causal_flag(case),
        checkpoint=given.checkpoint,
        padding_id=case.padding_id,
    )


def encode_inputs(task: Task) -> Tensors:
    """x or token ids and all that is given beside them: memory, types of tokens, positions and masks.

    They are those of the task's case, in the situation's format and the task's dtype. Positions are float64 in every
    dtype, as the adapter's own counting would be exact.
    """
    case, dtype = task.case, task.format.numpy
    name = "ids" if case.layer.takes_ids else "x"
    memory = {} if (second := case.memory()) is None else {"memory": second.astype(dtype)}
    types = {} if (third := case.token_types()) is None else {"token_types": in_layout(third, case.situation.given)}
    places = {} if (coordinates := case.coordinates()) is None else {"positions": coordinates}
    return {
        name: in_layout(case.given_x(dtype), case.situation.given),
        **memory,
        **types,
        **places,
        **_masks(case, dtype),
    }


def in_layout(x: Array, given: InputFormat) -> Array:
    """x [B, S, D], or token ids [B, S], in the situation's layout."""
    if given.layout == "unbatched":
        return np.asarray(x[0])
    return np.ascontiguousarray(x.swapaxes(0, 1)) if given.layout == "sequence_first" else x


def decode_outputs(tensors: Tensors, case: Case) -> Tensors:
    """An answer in batch-first layout. Raises WorkerFailure where its own layout is wrong."""
    layout = case.situation.given.layout
    if layout == "batch_first":
        return tensors  # where a shape is wrong, the judge's message is better
    expected = in_layout(np.empty(case.x_shape), case.situation.given).shape
    outputs = {name: tensor for name, tensor in tensors.items() if name in ("output", "x")}
    for name, tensor in sorted(outputs.items()):
        if tensor.shape != expected:
            problem = f"{name}: shape {list(tensor.shape)} instead of {list(expected)}, {layout}"
            raise WorkerFailure(Outcome.FAIL, problem, lost=False)
    return {**tensors, **{name: x[None] if layout == "unbatched" else x.swapaxes(0, 1) for name, x in outputs.items()}}


def causal_flag(case: Case) -> bool:
    """Whether the request has the flag for a causal mask."""
    return isinstance(case.situation.mask.attention, Causal) and case.situation.given.causal != "mask"


def _masks(case: Case, dtype: np.dtype[Any]) -> Tensors:
    given, tensors = case.situation.given, Tensors()
    padding, attention, bias = case.padding_mask(), case.attention_mask(), case.attention_bias()
    if causal_flag(case) and given.causal == "flag":
        attention = None
    bias_in_mask = bias is not None and given.masks.startswith("additive")
    if bias_in_mask and attention is None:
        attention = np.ones((1, 1, 1, 1), dtype=np.bool_)
    if padding is not None and given.padding == "mask":
        tensors["padding_mask"] = _reshape_padding(_encode_mask(padding, given, dtype), given)
    if attention is not None:
        encoded = _encode_mask(attention, given, dtype)
        if bias_in_mask and bias is not None:
            encoded = encoded + bias.astype(encoded.dtype)
        tensors["attention_mask"] = _reshape_attention(encoded, given, case)
    if bias is not None and not bias_in_mask:
        tensors["attention_bias"] = bias.astype(dtype)
    return tensors


def _encode_mask(mask: Bools, given: InputFormat, dtype: np.dtype[Any]) -> Array:
    match given.masks:
        case "attend":
            return mask
        case "ignore":
            return ~mask
        case "integer":
            return mask.astype(np.int32)
        case "float":
            return mask.astype(dtype)
        case "additive":
            return np.where(mask, 0.0, -np.inf).astype(dtype)
        case "additive_float32":
            return np.where(mask, 0.0, -np.inf).astype(np.float32)


def _reshape_padding(mask: Array, given: InputFormat) -> Array:
    """[B, 1, 1, S] as [B, 1, S], [B, S], or [S] for one item."""
    if given.rank == 4:
        return mask
    flat = mask[:, 0] if given.rank == 3 else mask[:, 0, 0]
    return flat[0] if given.layout == "unbatched" else flat


def _reshape_attention(mask: Array, given: InputFormat, case: Case) -> Array:
    """[B or 1, H or 1, S, T] as [B * H, S, T] or [S, T]."""
    if given.rank == 4:
        return mask
    situation, H = case.situation, case.layer.attention.num_heads
    B, S, T = situation.batch, situation.sequence, situation.keys
    if given.rank == 2:
        return np.broadcast_to(mask[0, 0], (S, T))
    return np.broadcast_to(mask, (B, H, S, T)).reshape(B * H, S, T)
