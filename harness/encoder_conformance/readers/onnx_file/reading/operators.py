"""Checks opsets and operators against the installed onnx."""

from collections import Counter

import onnx
import onnxruntime as ort
from onnx import defs

from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.nodes import STANDARD, attributes_of, every_node, node_label

ONNX_DOMAINS = (*STANDARD, "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")
ONNX_RUNTIME_DOMAINS = ("com.microsoft", "com.ms.internal.nhwc", "com.microsoft.nchwc")
_OF_ANY_OPSET = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that ONNX Runtime has in ONNX's own domain, whatever the opset; its optimisers write them so."""


def unknown_opset(model: onnx.ModelProto) -> bool:
    """Whether the installed onnx does not know its opset yet."""
    return any(o.version > defs.onnx_opset_version() for o in model.opset_import if o.domain in STANDARD)


def of_onnx_runtime_alone(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes in ONNX's own domain that its opset has not, and ONNX Runtime has."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 1)
    named = [node for node in every_node(model) if node.domain in STANDARD and node.op_type in _OF_ANY_OPSET]
    return [node for node in named if not defs.has(node.op_type, min(opset, defs.onnx_opset_version()))]


def check_operators(model: onnx.ModelProto, findings: Findings) -> None:
    """Phase `operators`."""
    opset = _check_opset(model, findings)
    _check_schemas(model, opset, findings)
    _check_other_domains(model, findings)
    if dropped := sum(node.op_type == "Dropout" and _trains(node, model) for node in every_node(model)):
        message = f"{dropped} Dropout nodes are in training mode: the file drops at random"
        hint = "call eval() on the module that is exported, the outermost one"
        findings.error("operators", "dropout-in-training", message, hint, nodes=dropped)


def check_outputs(model: onnx.ModelProto, findings: Findings) -> bool:
    """Whether each Split has the outputs that it states: where it has more, ONNX's shape inference ends the process."""
    splits = (node for node in every_node(model) if node.op_type == "Split" and node.domain in STANDARD)
    stated = ((node, attributes_of(node).get("num_outputs")) for node in splits)
    wrong = [(node, count) for node, count in stated if count is not None and count != len(node.output)]
    for node, count in wrong:
        message = f"{node_label(node)} states num_outputs {count}, and has {len(node.output)}"
        findings.error("checker", "checker-refuses", message, "export it again", node=node.name, certain=True)
    return not wrong


def _check_opset(model: onnx.ModelProto, findings: Findings) -> int | None:
    """The opset of ONNX's own operators, if the file has any."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opset = next((opsets[domain] for domain in STANDARD if domain in opsets), None)
    newest = defs.onnx_opset_version()
    if opset is None and any(node.domain in STANDARD for node in every_node(model)):
        message = "no opset is stated for ONNX's own operators"
        findings.error("operators", "opset-missing", message, "add opset_import of the domain ''")
        opset = 1
    if opset is not None and opset > newest:
        message = f"opset {opset} is newer than the installed onnx {onnx.__version__} knows, {newest}"
        hint = f"export with opset_version={newest}, or install a newer onnx"
        findings.error("operators", "opset-too-new", message, hint, opset=opset, newest=newest)
    elif opset is not None and opset < 7:
        oldest = f"opset {opset} is older than any that ONNX Runtime promises to run, 7"
        findings.warning("operators", "opset-old", oldest, "export with opset_version=17 or higher", opset=opset)
    return opset


def _check_schemas(model: onnx.ModelProto, opset: int | None, findings: Findings) -> None:
    """Each of ONNX's operators exists in the opset of its domain."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for node in _without_own_functions(model):
        if node.domain not in ONNX_DOMAINS:
            continue
        version = min(opsets.get(node.domain, opset or 1), defs.onnx_opset_version())
        try:
            schema = defs.get_schema(node.op_type, version, node.domain if node.domain != "ai.onnx" else "")
        except defs.SchemaError:
            _say_unknown(node, version, findings)
        else:
            if schema.deprecated:
                message = f"{node.op_type} is deprecated in opset {version}"
                about = {"operator": node.op_type, "opset": version}
                findings.warning("operators", "operator-deprecated", message, **about)


def _say_unknown(node: onnx.NodeProto, opset: int, findings: Findings) -> None:
    """An operator that this opset has not."""
    message = f"{node.op_type} is no operator of opset {opset}{_since(node.op_type)}"
    about = {"operator": node.op_type, "opset": opset}
    if node.op_type in _OF_ANY_OPSET and node.domain in STANDARD:
        message += f"; ONNX Runtime {ort.__version__} has it all the same, other runtimes do not"
        hint = "export with an opset_version that has it before ONNX Runtime optimises the file"
        findings.warning("operators", "operator-of-onnxruntime", message, hint, **about)
    else:
        hint = "export with another opset_version, one that has the operator"
        known = _came_with(node.op_type) is not None and node.domain in STANDARD  # else it may be of an onnx to come
        findings.error("operators", "operator-unknown", message, hint, **about, certain=known)


def _check_other_domains(model: onnx.ModelProto, findings: Findings) -> None:
    foreign = Counter((n.domain, n.op_type) for n in _without_own_functions(model) if n.domain not in ONNX_DOMAINS)
    for (domain, op), count in foreign.items():
        message = f"{count} of {op} from {domain!r}, which is not ONNX's own"
        about = {"operator": op, "domain": domain, "nodes": count}
        if domain in ONNX_RUNTIME_DOMAINS:
            message += f"; ONNX Runtime {ort.__version__} has it, other runtimes do not"
            hint = "keep the file from before ONNX Runtime optimised it"
            findings.warning("operators", "operator-of-onnxruntime", message, hint, **about)
        else:
            message = f"{message}: a custom operator"
            findings.error("operators", "operator-custom", message, "export for ONNX's own operators", **about)


def _without_own_functions(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    own = {(function.domain, function.name) for function in model.functions}
    return [node for node in every_node(model) if (node.domain, node.op_type) not in own]


def _trains(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether a Dropout node drops, as far as its inputs are constants."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants |= {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.attribute}
    mode, rate = constants.get(node.input[2]), constants.get(node.input[1])
    on = mode is not None and bool(onnx.numpy_helper.to_array(mode).any())
    return on and (rate is None or bool(onnx.numpy_helper.to_array(rate).any()))


def _since(op: str) -> str:
    opset = _came_with(op)
    return ", nor of any other" if opset is None else f"; it came with opset {opset}"


def _came_with(op: str) -> int | None:
    """The opset that an operator of ONNX's own came with; None for one that is none of the installed onnx."""
    try:
        return int(defs.get_schema(op).since_version)
    except defs.SchemaError:
        return None
