"""Runs ONNX's checker and strict shape inference, and compares the shapes that the file states."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from math import prod

import onnx
from google.protobuf.message import Message

from encoder_conformance.protocol.findings import Severity
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import error_text
from encoder_conformance.readers.onnx_file.graph.nodes import every_node
from encoder_conformance.readers.onnx_file.reading.operators import (
    ONNX_DOMAINS,
    ONNX_RUNTIME_DOMAINS,
    of_onnx_runtime_alone,
)

SMALL = 1024
"""The most elements of an initializer that shapes are computed from."""


def check_model(model: onnx.ModelProto, findings: Findings) -> None:
    """Phase `checker`; the operators are checked before."""
    with _of_its_own_domain(model):
        _check(model, findings)


@contextmanager
def _of_its_own_domain(model: onnx.ModelProto) -> Iterator[None]:
    """Has what ONNX Runtime alone has in the domain of that, into which ONNX's checker does not look: in place, for a
    copy is as large as the file."""
    moved = [(node, node.domain) for node in of_onnx_runtime_alone(model)]
    kept = len(model.opset_import)
    if moved and all(entry.domain != ONNX_RUNTIME_DOMAINS[0] for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(ONNX_RUNTIME_DOMAINS[0], 1))
    for node, _ in moved:
        node.domain = ONNX_RUNTIME_DOMAINS[0]
    try:
        yield
    finally:
        for node, domain in moved:
            node.domain = domain
        del model.opset_import[kept:]


def _check(model: onnx.ModelProto, findings: Findings) -> None:
    try:
        onnx.checker.check_model(model, full_check=False)
    except MemoryError:
        message = "checking it takes more memory than a file of its size may"
        findings.error("checker", "too-much-memory", message, step="check")
        return
    except Exception as error:
        if not (findings.errors("operators") and "No Op registered" in str(error)):  # one problem, one finding
            message = f"onnx.checker: {error_text(error)}"
            known = model.ir_version <= onnx.IR_VERSION  # else the checker is older than the file
            hint = "the exporter wrote a model that is not valid" if known else "install a newer onnx"
            findings.error("checker", "checker-refuses", message, hint, certain=known)
        return
    light = without_weights(model)
    try:
        onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True, data_prop=True)
    except MemoryError:
        message = "inferring its shapes takes more memory than a file of its size may"
        findings.error("checker", "too-much-memory", message, step="shape inference")
        return
    except Exception as error:
        custom = any(node.domain not in ONNX_DOMAINS for node in every_node(model))
        message = f"strict shape inference: {error_text(error)}"
        hint = "what the graph says of shapes contradicts its operators"
        severity: Severity = "warning" if custom else "error"
        findings.add("checker", severity, "shapes-contradict", message, hint, certain=not custom)
    _check_stated_shapes(light, findings)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for shape inference, with each large initializer as an input of its shape."""
    light = onnx.ModelProto()
    _copy_fields(model, light, without="graph")
    declared = {info.name for info in model.graph.input}
    for tensor in model.graph.initializer:
        if max(0, prod(tensor.dims)) <= SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in declared:
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    _copy_fields(model.graph, light.graph, without="initializer")
    return light


def _copy_fields(source: Message, target: Message, *, without: str) -> None:
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        else:
            setattr(target, field.name, value)


def _check_stated_shapes(model: onnx.ModelProto, findings: Findings) -> None:
    """The sizes that the file states follow from its inputs."""
    bare = deepcopy(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        bare = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except Exception:
        return
    inferred_shapes = {info.name: info for info in (*bare.graph.value_info, *bare.graph.output)}
    for info in (*model.graph.value_info, *model.graph.output):
        if info.name not in inferred_shapes or not info.type.tensor_type.HasField("shape"):
            continue
        stated, inferred = (
            [d.dim_value if d.HasField("dim_value") else None for d in i.type.tensor_type.shape.dim]
            for i in (info, inferred_shapes[info.name])
        )
        other_rank = inferred_shapes[info.name].type.tensor_type.HasField("shape") and len(stated) != len(inferred)
        if other_rank or any(None not in pair and pair[0] != pair[1] for pair in zip(stated, inferred, strict=False)):
            findings.warning(
                "checker",
                "stated-shape-wrong",
                f"{info.name!r} is stated as {stated}, and {inferred} follows from the inputs",
                "a stale value_info, left over from another export: --fix drops it",
                name=info.name,
                stated=stated,
                inferred=inferred,
            )
            return
