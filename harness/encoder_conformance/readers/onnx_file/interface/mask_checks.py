"""Checks what each mask does: that it hides keys, wholly, and as expected."""

from collections.abc import Collection

from encoder_conformance.protocol.arguments import MaskMeaning
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import inputs_of
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics
from encoder_conformance.readers.onnx_file.interface.ports import INTEGERS

_CAUSAL = PhaseFinding(
    phase="masks",
    severity="error",
    kind="causal-built-in",
    message="no position sees a later one: a causal mask is built into the file",
    hint='an encoder has none; transformers\' sdpa may add one: export with attn_implementation="eager". Where it is '
    "meant, as in CLIP's text encoder, --deviation mask-causal says so",
    deviation="mask-causal",
)


def check_masks(
    graph: Graph,
    semantics: InputSemantics,
    expected: MaskMeaning | None,
    findings: Findings,
    taken_before: Collection[str] = (),
) -> None:
    """`expected` is the meaning that the user states. `taken_before`: inputs of what stands before the encoder, of
    which the encoder may use the sizes."""
    masks = [mask for mask in semantics.masks if mask.polarity is not None or mask.name not in taken_before]
    masks = [mask for mask in masks if mask.turning is None and 0 not in mask.shape]  # of no items, as past keys are
    if semantics.causal:
        findings.take(_CAUSAL)
    for mask in masks:
        _check_mask(graph, semantics, mask, findings)
    if expected is None:
        return
    if not masks:
        findings.error(
            "masks",
            "mask-missing",
            f"masks that mean {expected} are expected, and the file takes none",
            "give the exporter the mask as a tensor among its inputs; of None it keeps nothing",
            expected=expected,
        )
    for mask in masks:
        if mask.polarity is not None and mask.polarity.meaning != expected:
            findings.error(
                "masks",
                "mask-meaning-unexpected",
                f"{mask.name!r} means {mask.polarity.meaning}, shown by what it hides, and {expected} is expected",
                "turn the mask round where the file is called, or export it anew",
                name=mask.name,
                meaning=mask.polarity.meaning,
                expected=expected,
            )


def _check_mask(graph: Graph, semantics: InputSemantics, mask: MaskSemantics, findings: Findings) -> None:
    unread = mask.polarity is None and semantics.output.name not in graph.depending_on(mask.name)
    if unread and mask.dtype in INTEGERS and _gives_sizes(graph, mask.name):
        findings.warning(
            "masks",
            "mask-sizes-only",
            f"of {mask.name!r} the sizes alone are used",
            "token ids that an embedding was cut away from give no more; a mask of which no more is used hides nothing",
            name=mask.name,
        )
    elif unread:
        findings.error(
            "masks",
            "mask-ignored",
            f"the output does not depend on {mask.name!r}: the file takes it and ignores it",
            "was the mask of the example folded into constants? Export with a mask that hides some positions, and with "
            "do_constant_folding=False",
            name=mask.name,
        )
    elif mask.polarity is None and not semantics.isolated:
        findings.error("masks", *_hides_nothing(mask), name=mask.name)
    elif mask.counted:
        findings.warning(
            "masks",
            "mask-counted",
            f"only the number of ones in {mask.name!r} counts: padding on the right is hidden, and no other",
            "ONNX Runtime's optimiser makes attention so: FusionOptions.use_raw_attention_mask(True) keeps the mask",
            name=mask.name,
        )
    elif mask.leakage:
        findings.error(
            "masks",
            "mask-hides-in-part",
            f"{mask.name!r} hides a position in part: {mask.leakage:.2g} of what it does to the others is left",
            "what is added to hidden scores, or put in their place, is not low enough: export with -inf, or -1e9",
            name=mask.name,
            leakage=mask.leakage,
        )


def _gives_sizes(graph: Graph, name: str) -> bool:
    """Whether nodes take the shape of an input, or of what is made of it."""
    made = graph.depending_on(name)
    return any(node.op_type in ("Shape", "Size") and not made.isdisjoint(inputs_of(node)) for node in graph.nodes)


def _hides_nothing(mask: MaskSemantics) -> tuple[FindingKind, str, str]:
    """The way in which a mask that reaches the output fails to hide a key, in words, and what to do."""
    if mask.flipped:
        return (
            "mask-sign-flipped",
            f"the sign of {mask.name!r} is flipped: it hides a position at +1e9, and raises it at -1e9",
            "it is subtracted where it should be added to the scores: export it anew",
        )
    if mask.past_softmax:
        return (
            "mask-after-softmax",
            f"{mask.name!r} does not hide positions: it is not applied to the scores, but after the softmax",
            "apply it before the softmax; after it, what is hidden keeps its share of each row of weights",
        )
    message = f"flagging a position in {mask.name!r} hides it from no other, whichever way it is read"
    return "mask-hides-nothing", message, "is it no mask?"
