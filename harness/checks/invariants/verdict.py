"""Judges an invariant: the answers to two ways of asking against each other, in √2 σ (rule J-7)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.checks.invariants.follow_ups import FollowUp, base_of
from encoder_conformance.judge.expected import ExpectedTensor
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import TensorVerdict, Verdict, judge_tensor
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.reason import Kind, Reason
from encoder_conformance.spec.case import Bools, Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import Format

Array = npt.NDArray[Any]


def judge_invariant(
    case: Case,
    asked: Sequence[FollowUp],
    observed: Sequence[Mapping[str, Array]],
    dtype: Format,
    constants: Constants,
) -> Verdict:
    """`observed` has the answer to the base, and then one for each variant."""
    base, invariant = base_of(case), case.situation.invariant
    if not asked:
        return Verdict(outcome=Outcome.ERROR, message=f"{invariant}: it was asked in one way alone")
    if wrong := [sorted(answer) for answer in observed if set(answer) != {"output"}]:
        return Verdict(outcome=Outcome.ERROR, message=f"answered output with the wrong names: {', '.join(wrong[0])}")
    first = observed[0]["output"]
    if problem := _unusable(base, first, dtype, exact=invariant == "determinism"):
        return Verdict(outcome=Outcome.FAIL, stage="output", message=f"{invariant}: {asked[0].base}: {problem}")
    judged = []
    for variant, answer in zip(asked, observed[1:], strict=True):
        if invariant == "determinism":
            judged.append(_same_bits(variant, first, answer["output"]))
        else:
            judged.append(_within_noise(base, variant, first, answer["output"], dtype, constants))
    out = [(variant, tensor) for variant, tensor in zip(asked, judged, strict=True) if not tensor.conforms]
    return Verdict(
        outcome=Outcome.FAIL if out else Outcome.PASS,
        rms=max((t.rms for t in judged if t.rms is not None), default=None),
        max=max((t.max for t in judged if t.max is not None), default=None),
        stage="output" if out else None,
        message=f"{invariant}: {_message(*out[0])}" if out else "",
        tensors=tuple(judged),
    )


def _unusable(base: Case, first: Array, dtype: Format, *, exact: bool) -> str:
    """Why the base's own answer can be compared with nothing; "" if it can (J-2, J-3)."""
    if first.shape != base.x_shape:
        return f"shape {list(first.shape)} instead of {list(base.x_shape)}"
    if first.dtype != dtype.numpy:
        return f"dtype {first.dtype} instead of {dtype.name}"
    if exact:
        return ""
    wrong = np.isfinite(measured_condition(base)["output"]) & ~np.isfinite(first) & base.specified()[:, :, None]
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"{float(first[at]):g} at {list(at)}, where the layer gives a number"
    return ""


def _within_noise(
    base: Case, variant: FollowUp, first: Array, answer: Array, dtype: Format, constants: Constants
) -> TensorVerdict:
    if answer.shape != variant.case.x_shape:
        text = f"shape {list(answer.shape)} instead of {list(variant.case.x_shape)}"
        return _not_comparable(variant, "shape", text)
    returned, at = _returned(variant, answer, first.shape)
    places = np.flatnonzero(at)
    least = dtype.smallest_normal / dtype.roundoff
    condition = np.maximum(measured_condition(base)["output"].reshape(-1)[places], least)
    noise = np.sqrt(2.0) * condition  # two answers differ by two noises
    due = ExpectedTensor(first.shape, places, first.reshape(-1)[places].astype(np.float64), noise)
    return judge_tensor(variant.says, returned, due, dtype, constants)


def _same_bits(variant: FollowUp, first: Array, answer: Array) -> TensorVerdict:
    if (answer.shape, answer.dtype) != (first.shape, first.dtype):
        kind: Kind = "shape" if answer.shape != first.shape else "dtype"
        text = f"{answer.dtype} {list(answer.shape)} instead of {first.dtype} {list(first.shape)}"
        return _not_comparable(variant, kind, text)
    returned, at = _returned(variant, answer, first.shape)
    bits = np.dtype(f"u{first.dtype.itemsize}")
    differ = at & (returned.view(bits) != np.ascontiguousarray(first).view(bits))
    if not differ.any():
        return TensorVerdict(tensor=variant.says, conforms=True, rms=0.0, max=0.0)
    with np.errstate(invalid="ignore"):
        distance = np.nan_to_num(np.abs(returned.astype(np.float64) - first.astype(np.float64)), nan=np.inf)
    where = tuple(int(i) for i in np.unravel_index(int(np.where(differ, distance, -1.0).argmax()), first.shape))
    text = (
        f"{float(returned[where]):.9g} at {list(where)}, {variant.base} {float(first[where]):.9g} "
        f"({int(differ.sum())} of {int(at.sum())} elements have other bits)"
    )
    return _not_comparable(variant, "bits", text)


def _not_comparable(variant: FollowUp, kind: Kind, text: str) -> TensorVerdict:
    return TensorVerdict(tensor=variant.says, conforms=False, problem=Reason(kind=kind, text=text))


def _returned(variant: FollowUp, answer: Array, shape: tuple[int, ...]) -> tuple[Array, Bools]:
    """A variant's answer with each element back in the base's place, and where there is one to compare."""
    case, same = variant.case, variant.case.same()
    to = case.items[same], case.positions[same]
    returned, at = np.zeros(shape, answer.dtype), np.zeros(shape, dtype=np.bool_)
    returned[to], at[to] = answer[same], True
    return returned, at


def _message(variant: FollowUp, out: TensorVerdict) -> str:
    if out.problem:
        return f"{variant.says}: {out.problem.text}"
    assert out.worst_index is not None
    return (
        f"{variant.says} gives {out.observed:.9g} at {list(out.worst_index)}, {variant.base} {out.expected:.9g}: "
        f"{out.max:.3g} σ, rms {out.rms:.3g} σ (σ {out.sigma:.2g}, of a difference)"
    )
