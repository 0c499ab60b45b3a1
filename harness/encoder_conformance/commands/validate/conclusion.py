"""The conclusions of a validation, their exit status and how they are told, and a layer in one line.

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
CONCLUSIONS: dict[Kind, tuple[int, str]] = {
    "as_stated": (0, "It does what it should"),
    "as_source": (0, "It does what its source does, and both do something else than the layer that was read off them"),
    "consistent": (0, "It conforms to itself"),
    "runtime_wrong": (1, "The file is right, and a runtime does something else"),
    "wrong": (1, "It does not do what it should"),
    "not_judged": (2, "It could not be judged"),
}
"""Kind → the exit status, and how the last line begins."""
_AXES: dict[Layout, str] = {
    "BSD": "[batch, sequence, features]",
    "SBD": "[sequence, batch, features]",
    "SD": "[sequence, features]",
}


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
