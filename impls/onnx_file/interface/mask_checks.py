"""Checks what each mask does: that it hides keys, wholly, and as expected."""

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.input_semantics import InputSemantics, MaskSemantics
from encoder_conformance.validate.findings import MaskMeaning


def check_masks(graph: Graph, semantics: InputSemantics, expected: MaskMeaning | None, findings: Findings) -> None:
    """`expected` is the meaning that the user states."""
    if semantics.causal:
        message = "no position sees a later one: a causal mask is built into the file"
        findings.error("masks", message, "an encoder has none")
    for mask in semantics.masks:
        _check_mask(graph, semantics, mask, findings)
    if expected is None:
        return
    if not semantics.masks:
        findings.error("masks", f"masks that mean {expected} are expected, and the file takes none")
    for mask in semantics.masks:
        if mask.polarity is not None and mask.polarity.meaning != expected:
            findings.error(
                "masks",
                f"{mask.name!r} means {mask.polarity.meaning}, shown by what it hides, and {expected} is expected",
                "turn the mask round where the file is called, or export it anew",
            )


def _check_mask(graph: Graph, semantics: InputSemantics, mask: MaskSemantics, findings: Findings) -> None:
    if mask.polarity is None and semantics.output.name not in graph.depending_on(mask.name):
        findings.error(
            "masks",
            f"the output does not depend on {mask.name!r}: the file takes it and ignores it",
            "was the mask of the example folded into constants? Export with the mask as a tensor that hides some",
        )
    elif mask.polarity is None and not semantics.isolated:
        message = f"flagging a position in {mask.name!r} hides it from no other, whichever way it is read"
        findings.add("masks", "error" if mask.dtype == "bool" else "warning", message, "it is no mask of keys")
    elif mask.leakage:
        findings.error(
            "masks",
            f"{mask.name!r} hides a position in part: {mask.leakage:.2g} of what it does to the others is left",
            "what is added to hidden scores, or put in their place, is not low enough: export with -inf, or -1e9",
        )
