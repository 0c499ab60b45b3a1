"""The conclusion of a validation: as what the file was judged, with what that was compared, and its exit status.

A file that is a consistent other layer conforms to itself. Only what a user states says what it should be.
"""

from typing import Literal

from encoder_conformance.protocol.description import GraphMask, Layout
from encoder_conformance.spec.layer import Layer

Kind = Literal["as_stated", "as_source", "consistent", "runtime_wrong", "wrong", "not_judged"]
"""As stated: it is the stated layer. As source: it does what its source does, and both are off from the layer that was
read off them. Consistent: it conforms to the layer that its own graph shows, and nothing
stated what it should be. Runtime wrong: the file is right, and a runtime that was asked does something else."""
Stated = Literal["layer", "parameters", "source"]
"""What the user stated: the layer that it should be, the parameters that it was made from, or its source."""
OPENINGS: dict[Kind, str] = {
    "as_stated": "It does what it should",
    "as_source": "It does what its source does, and both do something else than the layer that was read off them",
    "consistent": "It conforms to itself",
    "runtime_wrong": "The file is right, and a runtime does something else",
    "wrong": "It does not do what it should",
    "not_judged": "It could not be judged",
}
_AXES: dict[Layout, str] = {
    "BSD": "[batch, sequence, features]",
    "SBD": "[sequence, batch, features]",
    "SD": "[sequence, features]",
}


def kind_of(
    *, judged: bool, wrong: bool, runtime_wrong: bool, excused: bool, compared_with: tuple[Stated, ...]
) -> Kind:
    """`excused`: its source is wrong in the same way."""
    if not judged:
        return "not_judged"
    if wrong:
        return "wrong"
    if runtime_wrong:
        return "runtime_wrong"
    if excused:
        return "as_source"
    return "as_stated" if "layer" in compared_with else "consistent"


def status_of(kind: Kind) -> int:
    """0: it does what it should, or conforms to itself; 1: it was judged and does not, or a runtime does not; 2: it
    could not be judged."""
    return {"as_stated": 0, "as_source": 0, "consistent": 0, "runtime_wrong": 1, "wrong": 1, "not_judged": 2}[kind]


def comparison(
    kind: Kind, layer: Layer | None, compared_with: tuple[Stated, ...], choices: str, against: str | None = None
) -> str:
    """Say as what it was judged and against what, between the last line's opening and its counts; "" of what is wrong.

    `against` is the name of the source.
    """
    if layer is None or kind in ("wrong", "not_judged"):
        return ""
    if against is not None:
        if "layer" not in compared_with:
            return f", with the parameters of {against}: {choices}; only the values of parameters were compared"
        return f", as {against} does: {choices}; parameters, stages and outputs were compared"
    if kind == "consistent" or (kind == "runtime_wrong" and "layer" not in compared_with):
        return f": {choices}; not compared with any source (--layer, --parameters say what it should be)"
    values = "compared" if "parameters" in compared_with else "not compared with any source (--parameters)"
    return f", as {layer.layer}: {choices}; the values of its parameters were {values}"


def choices_text(layer: Layer, layout: Layout | None = None, masks: tuple[GraphMask, ...] = ()) -> str:
    """`post-norm layer_norm ε 1e-05, relu, scores over √head_dim, all biases, D = 512, H = 8, F = 2048, N = 6`."""
    attention, norm = layer.attention, layer.norm
    shared = ", projections shared by heads" if attention.projections == "shared_by_heads" else ""
    stack = f", N = {layer.stack.layers}" if layer.stack.layers > 1 else ""
    final = ", final norm" if layer.stack.final_norm else ""
    meanings = ", ".join(f"mask {mask.meaning}" for mask in masks if mask.meaning)
    return (
        f"{norm.placement}-norm {norm.kind} ε {norm.epsilon:.6g}, {layer.feed_forward.activation}, "
        f"scores over √{attention.scale}, {_biases(layer)}{shared}, "
        f"D = {layer.d_model}, H = {attention.num_heads}, F = {layer.feed_forward.d_ff}{stack}{final}"
        + (f", x {_AXES[layout]}" if layout else "")
        + (f", {meanings}" if meanings else "")
    )


def _biases(layer: Layer) -> str:
    """`all biases`, `no biases`, or the maps that have one."""
    having = {
        "query, key and value": layer.attention.qkv_bias,
        "attention's output": layer.attention.output_bias,
        "feed-forward": layer.feed_forward.bias,
    }
    if len(set(having.values())) == 1:
        return "all biases" if layer.feed_forward.bias else "no biases"
    return f"biases in {' and '.join(name for name, has in having.items() if has)} alone"
