"""Judges what integers do to each stage of a file, each stage from its own operands.

The file is cut at its stages, and what it gave for one goes into the next. Beside the file's own result stand two in
real numbers: without any rounding, and with activations rounded once, by the scale and the zero point that they are
quantised with. Their difference is what rounding can make. The file itself has to be as the second.
"""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance import Tensors
from encoder_conformance.protocol.description import Fact
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import node_label
from encoder_conformance.readers.onnx_file.layer.stages import StageTensor
from encoder_conformance.spec.axes import Array

LEFT = 0.1
"""What may be left, of the size of the rounding: numbers on the edge of two integers go one way or the other."""
FLOAT = 2.0**-18
"""What float32 may add, of the largest number of the stage, where sums are made in another order."""
PEAK = 5.0
"""The largest error, in sizes of the rounding: one operand that went the other way."""
SYSTEMATIC = 0.2
"""What a systematic error leaves unexplained, at most, where it is one."""


_LOOK = (
    "look at the scales and zero points on the way there; or sums of u8 by s8 saturate, as on processors without VNNI: "
    "quantise with reduce_range=True"
)


def judge_rounding(graph: Graph, stages: Mapping[str, StageTensor], feeds: Tensors, findings: Findings) -> Fact | None:
    """An error for each stage that rounding does not explain; None where the file cannot be run in pieces."""
    tensors = list(dict.fromkeys(stage.tensor for stage in stages.values()))
    try:
        own = ModelRunner(graph.original).trace(feeds)
        seen, saturated = {name: own[name] for name in tensors}, saturated_products(graph.original, own)
        del own  # every value of the file
        plain, rounded = (_from_operands(model, seen, feeds) for model in (graph.model, graph.rounded()))
    except (ExecutionError, KeyError, MemoryError) as error:
        message = f"what its integers do to each stage could not be looked at: {error or 'it takes too much memory'}"
        hint = "the relative error of the whole is all that is known of its rounding"
        findings.warning("reduction", "integers-not-looked-at", message, hint)
        return None
    largest, right = 0.0, True
    producers = {output: node_label(node) for node in graph.original.graph.node for output in node.output}
    for tensor, name in {stage.tensor: name for name, stage in reversed(list(stages.items()))}.items():
        due, given = (values[tensor].astype(np.float64) for values in (rounded, seen))
        size = rms(due - plain[tensor])
        allowed = FLOAT * float(np.abs(due).max())
        off = given - due
        largest = max(largest, rms(off) / size if size > allowed else 0.0)
        if rms(off) > LEFT * size + allowed or np.abs(off).max() > PEAK * size + 10 * allowed:
            made = f"rms {rms(off):.2g}, where rounding makes {size:.2g}"
            what, right = systematic(given, due), False
            if saturated and not what:  # which has a finding of its own
                continue
            message = f"{name} is further from its operands than its integers explain: {made}"
            hint = f"it is made by {producers[tensor]}: {_LOOK}"
            about = {"stage": name, "rms": rms(off), "rounding": size, "made_by": producers[tensor]}
            message += f"; {what}" if what else ""
            findings.error("reduction", "stage-off-by-integers", message, hint, **about)
    if saturated:
        _report_saturated(saturated, findings, harmless=right)
    evidence = (
        f"{len(tensors)} values, each from its own operands; at most {largest:.2g} of the rounding is unexplained"
    )
    return Fact(key="integers", value=right, evidence=evidence)


def _report_saturated(saturated: Mapping[str, int], findings: Findings, *, harmless: bool) -> None:
    """A note where no stage is further off than rounding takes it."""
    node, off = next(iter(saturated.items()))
    findings.add(
        "reduction",
        "note" if harmless else "error",
        "products-saturate",
        f"{len(saturated)} products of integers are not what they should be on this processor: "
        f"{node} is off by up to {off}: its sums are cut off at 16 bits",
        "processors without VNNI do that in ONNX Runtime (u8 by s8): quantise with reduce_range=True, or "
        "weights to uint8; where the file is deployed on others, validate it there",
        products=saturated,
    )


def saturated_products(model: onnx.ModelProto, own: Mapping[str, Array]) -> dict[str, int]:
    """Each product of integers whose result is not that of its operands → by how much at most."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}

    def number(name: str) -> Array | None:
        if name in own:
            return own[name].astype(np.int64)
        return numpy_helper.to_array(held[name]).astype(np.int64) if name in held else None

    found = {}
    for node in model.graph.node:
        if node.op_type != "MatMulInteger" or node.output[0] not in own:
            continue
        operands = [number(name) if name else np.int64(0) for name in [*node.input, "", ""][:4]]
        if any(operand is None for operand in operands):
            continue
        a, b, a_zero, b_zero = operands
        off = int(np.abs((a - a_zero) @ (b - b_zero) - own[node.output[0]]).max())  # type: ignore[operator]
        if off:
            found[node_label(node)] = off
    return found


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def systematic(given: Array, due: Array) -> str:
    """The kind of error [..., F] of a value: a factor, or a constant for each feature; "" for any other."""
    error = given - due
    factor = float(np.vdot(given, due) / np.vdot(due, due))
    if rms(given - factor * due) < SYSTEMATIC * rms(error):
        return f"it is {factor:.4g} times what it should be: a wrong {'sign' if factor < 0 else 'scale'}"
    constants = error.reshape(-1, error.shape[-1]).mean(0)
    if rms(error - constants) < SYSTEMATIC * rms(error):
        return "each feature is off by a constant: a wrong zero point"
    return ""


def _from_operands(model: onnx.ModelProto, seen: Tensors, feeds: Tensors) -> Tensors:
    """Each of the values, computed from what was seen of the others; raises ExecutionError."""
    cut = deepcopy(model)
    for node in cut.graph.node:
        node.input[:] = [_given(name) if name in seen else name for name in node.input]
    for name, value in seen.items():
        dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        cut.graph.input.append(onnx.helper.make_tensor_value_info(_given(name), dtype, [None] * value.ndim))
    del cut.graph.output[:]
    del cut.graph.value_info[:]
    cut.graph.output.extend(onnx.ValueInfoProto(name=name) for name in seen)
    return ModelRunner(cut).run({**feeds, **{_given(name): value for name, value in seen.items()}})


def _given(name: str) -> str:
    return f"{name}/given"
