"""Judges an invariant: compares the answers to the base case and to its follow-ups, in √2 σ (rule J-7)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.judging.verdict import TensorVerdict, Verdict, judge_tensor, not_comparable, verdict_on
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.spec.axes import BSD, Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.follow_ups import FollowUp, base_of, with_x_anew
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind, Reason


def judge_invariant(
    case: Case, follow_ups: Sequence[FollowUp], observed: Sequence[Mapping[str, Array]], dtype: Format
) -> Verdict:
    """`observed` holds the answer to the base case, then one for each of `follow_ups`."""
    base, invariant = base_of(case), case.situation.invariant
    if not follow_ups:
        return Verdict(outcome=Outcome.ERROR, message=f"{invariant}: no follow-up case was run")
    if wrong_names := [sorted(answer) for answer in observed if set(answer) != {"output"}]:
        return Verdict(
            outcome=Outcome.ERROR, message=f"answered output with the wrong names: {', '.join(wrong_names[0])}"
        )
    base_output = observed[0]["output"]
    if problem := _find_base_problem(base, base_output, dtype, exact=invariant == "determinism"):
        message = f"{invariant}: {follow_ups[0].base_description}: {problem.text}"
        return Verdict(outcome=Outcome.FAIL, stage="output", message=message, kind=problem.kind)
    judged = []
    for follow_up, answer in zip(follow_ups, observed[1:], strict=True):
        if invariant == "determinism":
            judged.append(_compare_bits(follow_up, base_output, answer["output"]))
        else:
            judged.append(_compare_within_noise(base, follow_up, base_output, answer["output"], dtype))
    for follow_up, tensor in zip(follow_ups, judged, strict=True):
        if not tensor.conforms:
            verdict = verdict_on(tuple(judged), "output", f"{invariant}: {_message(follow_up, tensor)}")
            return verdict.model_copy(update={"kind": tensor.problem.kind if tensor.problem else None})
    return verdict_on(tuple(judged))


def judge_dependence(
    case: Case, held: Verdict, base: Mapping[str, Array], anew: Mapping[str, Array], dtype: Format
) -> Verdict:
    """`held`, the verdict on an invariant that holds, unless the answer `anew` is that of the base: then inconclusive.

    `anew`: the answer with x anew (rule J-8).
    """
    invariant = case.situation.invariant
    if set(anew) != {"output"}:
        names = ", ".join(sorted(anew))
        return Verdict(outcome=Outcome.ERROR, message=f"answered output with the wrong names: {names}")
    other_input = with_x_anew(case)
    compared = replace(other_input, case=replace(other_input.case, redrawn=np.zeros_like(other_input.case.redrawn)))
    tensor = _compare_within_noise(base_of(case), compared, base["output"], anew["output"], dtype)
    if tensor.problem and tensor.problem.kind in ("shape", "dtype"):
        message = f"{invariant}: {_message(compared, tensor)}"
        return Verdict(outcome=Outcome.FAIL, stage="output", message=message, tensors=(*held.tensors, tensor))
    if not tensor.conforms:
        return held
    text = f"{invariant}: it holds, and shows nothing: the output is the same with another x"
    return Verdict(outcome=Outcome.INCONCLUSIVE, message=text, kind="input-ignored", tensors=held.tensors)


def _find_base_problem(base: Case, base_output: BSD, dtype: Format, *, exact: bool) -> Reason | None:
    """The reason why the base's answer cannot be compared; None if it can (J-2, J-3)."""
    if base_output.shape != base.x_shape:
        return Reason(kind="shape", text=f"shape {list(base_output.shape)} instead of {list(base.x_shape)}")
    if base_output.dtype != dtype.numpy:
        return Reason(kind="dtype", text=f"dtype {base_output.dtype} instead of {dtype.name}")
    if exact:
        return None
    wrong = np.isfinite(measured_condition(base)["output"]) & ~np.isfinite(base_output) & base.specified()[:, :, None]
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        text = f"{float(base_output[index]):g} at {list(index)}, where the layer gives a number"
        return Reason(kind="non-finite", text=text)
    return None


def _compare_within_noise(
    base: Case, follow_up: FollowUp, base_output: BSD, answer: BSD, dtype: Format
) -> TensorVerdict:
    if answer.shape != follow_up.case.x_shape:
        text = f"shape {list(answer.shape)} instead of {list(follow_up.case.x_shape)}"
        return not_comparable(follow_up.description, "shape", text)
    returned, compared = _return_to_base_order(follow_up, answer, base_output.shape)
    positions = np.flatnonzero(compared)
    smallest_condition = dtype.smallest_normal / dtype.roundoff
    condition = np.maximum(measured_condition(base)["output"].reshape(-1)[positions], smallest_condition)
    noise = np.sqrt(2.0) * condition  # two answers differ by two noises
    expected = ExpectedTensor(
        base_output.shape, positions, base_output.reshape(-1)[positions].astype(np.float64), noise
    )
    return judge_tensor(follow_up.description, returned, expected, dtype)


def _compare_bits(follow_up: FollowUp, base_output: BSD, answer: BSD) -> TensorVerdict:
    if (answer.shape, answer.dtype) != (base_output.shape, base_output.dtype):
        kind: Kind = "shape" if answer.shape != base_output.shape else "dtype"
        text = f"{answer.dtype} {list(answer.shape)} instead of {base_output.dtype} {list(base_output.shape)}"
        return not_comparable(follow_up.description, kind, text)
    returned, compared = _return_to_base_order(follow_up, answer, base_output.shape)
    bits = np.dtype(f"u{base_output.dtype.itemsize}")
    differ = compared & (returned.view(bits) != np.ascontiguousarray(base_output).view(bits))
    if not differ.any():
        return TensorVerdict(tensor=follow_up.description, conforms=True, rms=0.0, max=0.0)
    with np.errstate(invalid="ignore"):
        distance = np.nan_to_num(np.abs(returned.astype(np.float64) - base_output.astype(np.float64)), nan=np.inf)
    index = tuple(int(i) for i in np.unravel_index(int(np.where(differ, distance, -1.0).argmax()), base_output.shape))
    text = (
        f"{float(returned[index]):.9g} at {list(index)}, {follow_up.base_description} {float(base_output[index]):.9g} "
        f"({int(differ.sum())} of {int(compared.sum())} elements have other bits)"
    )
    return not_comparable(follow_up.description, "bits", text)


def _return_to_base_order(follow_up: FollowUp, answer: BSD, shape: tuple[int, ...]) -> tuple[BSD, BSD]:
    """A follow-up's answer with each element at its place in the base, and a mask of the elements to compare."""
    case, comparable = follow_up.case, follow_up.case.comparable()
    base_index = case.items[comparable], case.positions[comparable]
    returned, compared = np.zeros(shape, answer.dtype), np.zeros(shape, dtype=np.bool_)
    returned[base_index], compared[base_index] = answer[comparable], True
    return returned, compared


def _message(follow_up: FollowUp, verdict: TensorVerdict) -> str:
    if verdict.problem:
        return f"{follow_up.description}: {verdict.problem.text}"
    assert verdict.worst_index is not None
    return (
        f"{follow_up.description} gives {verdict.observed:.9g} at {list(verdict.worst_index)}, "
        f"{follow_up.base_description} {verdict.expected:.9g}: "
        f"{verdict.max:.3g} σ, rms {verdict.rms:.3g} σ (σ {verdict.sigma:.2g}, of a difference)"
    )
