"""What ONNX's own checker says of a file, and whether its operators are known to what is installed."""

from collections import Counter
from math import prod

import onnx
import onnxruntime as ort
from onnx import defs

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.execution import said

SMALL = 1024
"""Elements of an initializer that shapes may be computed from."""
STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")


def check(model: onnx.ModelProto, findings: Findings) -> None:
    """Stages `checker` and `operators`."""
    _check_operators(model, findings)
    custom = any(node.domain not in STANDARD for node in every_node(model))
    try:
        onnx.checker.check_model(model, full_check=False)
    except MemoryError:
        findings.error("checker", "checking it takes more memory than a file of its size may", "")
        return
    except Exception as error:
        if not (findings.errors("operators") and "No Op registered" in str(error)):  # that is said already
            findings.error("checker", f"onnx.checker: {said(error)}", "the exporter wrote a model that is not valid")
        return
    light = without_weights(model)
    try:
        onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True, data_prop=True)
    except MemoryError:
        findings.error("checker", "inferring its shapes takes more memory than a file of its size may", "")
        return
    except Exception as error:
        say = findings.warning if custom else findings.error
        say(
            "checker",
            f"strict shape inference: {said(error)}",
            "what the graph says of shapes contradicts its operators",
        )
    _check_stale(light, findings)


def unknown_opset(model: onnx.ModelProto) -> bool:
    """Whether it is of an opset that the installed onnx does not know yet."""
    return any(o.version > defs.onnx_opset_version() for o in model.opset_import if o.domain in ("", "ai.onnx"))


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for the inference of shapes, in which a large initializer is an input of its shape."""
    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            target = getattr(light, field.name)
            if field.is_repeated:
                target.extend(value)
            else:
                setattr(light, field.name, value)
    given = {info.name for info in model.graph.input}
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            for tensor in value:
                if max(0, prod(tensor.dims)) <= SMALL:
                    light.graph.initializer.append(tensor)
                elif tensor.name not in given:
                    light.graph.input.append(
                        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                    )
        elif field.is_repeated:
            getattr(light.graph, field.name).extend(value)
        else:
            setattr(light.graph, field.name, value)
    return light


def _check_stale(model: onnx.ModelProto, findings: Findings) -> None:
    """Sizes that the file states, and that differ from those that follow from its inputs."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        bare = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except Exception:
        return
    follows = {info.name: info for info in (*bare.graph.value_info, *bare.graph.output)}
    for info in (*model.graph.value_info, *model.graph.output):
        if info.name not in follows or not info.type.tensor_type.HasField("shape"):
            continue
        stated, due = (
            [d.dim_value if d.HasField("dim_value") else None for d in i.type.tensor_type.shape.dim]
            for i in (info, follows[info.name])
        )
        other_rank = follows[info.name].type.tensor_type.HasField("shape") and len(stated) != len(due)
        if other_rank or any(None not in pair and pair[0] != pair[1] for pair in zip(stated, due, strict=False)):
            findings.warning(
                "checker",
                f"{info.name!r} is stated as {stated}, and {due} follows from the inputs",
                "a stale value_info, left over from another export: infer shapes anew",
            )
            return


def _check_operators(model: onnx.ModelProto, findings: Findings) -> None:
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    own = {(function.domain, function.name) for function in model.functions}
    newest = defs.onnx_opset_version()
    standard = opsets.get("", opsets.get("ai.onnx"))
    if standard is None and any(node.domain in ("", "ai.onnx") for node in every_node(model)):
        findings.error("operators", "no opset is stated for ONNX's own operators", "add opset_import of the domain ''")
        standard = 1
    if standard is not None and standard > newest:
        findings.error(
            "operators",
            f"opset {standard} is newer than the installed onnx {onnx.__version__} knows, {newest}",
            "export at a lower opset, or install a newer onnx",
        )
    elif standard is not None and standard < 7:
        findings.warning(
            "operators", f"opset {standard} is older than any that ONNX Runtime promises to run, 7", "export anew"
        )
    wrong: Counter[tuple[str, str]] = Counter()
    for node in every_node(model):
        if (node.domain, node.op_type) in own:
            continue
        if node.domain not in STANDARD:
            wrong[node.domain, node.op_type] += 1
            continue
        version = min(opsets.get(node.domain, standard or 1), newest)
        try:
            schema = defs.get_schema(node.op_type, version, node.domain if node.domain != "ai.onnx" else "")
        except defs.SchemaError:
            findings.error(
                "operators",
                f"{node.op_type} is no operator of opset {version}{_since(node.op_type)}",
                "the exporter wrote an operator that does not exist there",
            )
            continue
        if schema.deprecated:
            findings.warning("operators", f"{node.op_type} is deprecated in opset {version}", "")
    for (domain, op), count in wrong.items():
        known = domain in ("com.microsoft", "com.ms.internal.nhwc", "com.microsoft.nchwc")
        say = findings.warning if known else findings.error
        say(
            "operators",
            f"{count} of {op} from {domain!r}, which is not ONNX's own"
            + (f"; ONNX Runtime {ort.__version__} has it, other runtimes do not" if known else ": a custom operator"),
            "export for the standard operators" if not known else "keep the file from before ONNX Runtime optimised it",
        )
    if dropped := [node for node in every_node(model) if node.op_type == "Dropout" and _trains(node, model)]:
        findings.error(
            "operators",
            f"{len(dropped)} Dropout nodes are in training mode: the file drops at random",
            "call eval() on the module that is exported, the outermost one",
        )


def _trains(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether a Dropout node drops; of what is constant."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    held |= {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.attribute}
    mode, rate = held.get(node.input[2]), held.get(node.input[1])
    on = mode is not None and bool(onnx.numpy_helper.to_array(mode).any())
    return on and (rate is None or bool(onnx.numpy_helper.to_array(rate).any()))


def _since(op: str) -> str:
    try:
        return f"; it came with opset {defs.get_schema(op).since_version}"
    except defs.SchemaError:
        return ", nor of any other"


def every_node(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Of the graph, its subgraphs and its functions."""
    found: list[onnx.NodeProto] = []
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                waiting += graph.node
    return found
