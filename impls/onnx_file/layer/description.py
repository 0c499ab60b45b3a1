"""An encoder that was found, in the specification's layer language, each choice with what shows it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.interface.input_semantics import Roles
from encoder_conformance.impls.onnx_file.layer.structure import Encoder, OneLayer

EPSILON_FOR_NONE = float(np.float32(1e-12))
"""What a norm without an epsilon is judged as; the specification has none without."""
ACTIVATION_CLOSE = {"float16": 4e-3, "bfloat16": 3e-2}
"""Of an activation whose constants the format has rounded."""
SCALE_CLOSE = {"float16": 2e-3, "bfloat16": 1e-2}
"""Relative, of a scale that the format has rounded; 1e-4 in wider ones."""
Fact = dict[str, Any]


def describe(encoder: Encoder, roles: Roles, inside: str, findings: Findings) -> tuple[dict[str, Any], list[Fact]]:
    """The layer as `layer.schema.json` has it, `fully_masked_row` yet unspecified; and the facts it is made of.
    `inside` is the format that the file computes in."""
    facts: list[Fact] = []
    chosen: list[dict[str, Any]] = []
    several = len(encoder.layers) > 1
    for number, layer in enumerate(encoder.layers):
        choices = _choices(layer, inside, f"layer {number}: " if several else "", findings)
        chosen.append({key: value for key, (value, _) in choices.items()})
        if number == 0:
            facts += [{"key": key, "value": value, "evidence": said} for key, (value, said) in choices.items()]
        for key, value in chosen[0].items():
            if chosen[-1][key] != value:
                findings.error(
                    "layer",
                    f"the layers of the stack differ: {key} is {value} in layer 0, {chosen[-1][key]} in layer {number}",
                    "the specification's stack is of layers that are equal in their choices (E-14)",
                )
    one = chosen[0]
    final = encoder.final_norm
    facts.append({"key": "stack.layers", "value": len(encoder.layers), "evidence": "counted from the output back to x"})
    facts.append(
        {
            "key": "stack.final_norm",
            "value": final is not None,
            "evidence": f"norm {final.name!r}" if final else "none follows",
        }
    )
    if final is not None and (final.kind, final.epsilon or EPSILON_FOR_NONE) != (one["norm.kind"], one["norm.epsilon"]):
        findings.error(
            "layer",
            f"the final norm is {final.kind} with epsilon {final.epsilon:g}, "
            f"the layers' {one['norm.kind']} with {one['norm.epsilon']:g}",
            "in the specification they are equal (E-14)",
        )
    layer = {
        "layer": "from-file",
        "title": "The layer that a file holds",
        "clauses": ["L-1"],
        "family": "stacks" if several or final is not None else "small",
        "d_model": roles.d_model,
        "norm": {key: one[f"norm.{key}"] for key in ("placement", "kind", "epsilon")},
        "attention": {
            **{
                key: one[f"attention.{key}"] for key in ("num_heads", "projections", "qkv_bias", "output_bias", "scale")
            },
            "masked_score": "minus_infinity",
            "fully_masked_row": "unspecified",
        },
        "feed_forward": {key: one[f"feed_forward.{key}"] for key in ("d_ff", "activation", "bias")},
        "dropout": dict.fromkeys(("attention_weights", "attention_output", "ffn_activation", "ffn_output"), 0.0),
        "stack": {"layers": len(encoder.layers), "final_norm": final is not None},
        "embedding": None,
        "padded_rows": "unspecified",
        "padding_content": "finite",
    }
    return layer, facts


def _choices(layer: OneLayer, dtype: str, where: str, findings: Findings) -> dict[str, tuple[Any, str]]:
    """Key of the language → its value, and what shows it."""
    norm, scores = layer.norm1, layer.scores
    H = scores.shape[1]
    D, d = norm.shape[-1], layer.query.columns.size // H
    qkv = (layer.query.linear, layer.key.linear, layer.value.linear)
    shared = [linear.heads > 1 for linear in qkv]
    if any(shared) and not all(shared):
        findings.error("layer", f"{where}some of query, key and value are shared by the heads, and some are not")
    if layer.query.columns.size != D:
        findings.error("layer", f"{where}{H} heads of {d} features are {H * d} wide, and d_model is {D}")
    norms = {"norm1": layer.norm1, "norm2": layer.norm2}
    if len({(n.kind, n.epsilon) for n in norms.values()}) > 1:
        said = " and ".join(f"{name} is {n.kind} with epsilon {n.epsilon:g}" for name, n in norms.items())
        findings.error("layer", f"{where}the two norms differ: {said}", "in the specification they are equal")
    for name, n in norms.items():
        if not n.epsilon:
            findings.error(
                "layer",
                f"{where}{name} adds an epsilon of 0 ({n.evidence}): a row without variance gives NaN",
                f"export with an epsilon that {dtype} holds; it is judged as one of {EPSILON_FOR_NONE:.0e}",
            )
        if n.off:
            findings.warning(
                "layer", f"{where}{name} is no {n.kind} exactly: {n.off:.2g} off, relatively", "it is taken for one"
            )
    if layer.activation.off > ACTIVATION_CLOSE.get(dtype, 0):
        what = (
            f"{where}the activation is no {layer.activation.function} exactly: off by up to {layer.activation.off:.2g}"
        )
        findings.warning("layer", what, "it is taken for one")
    if layer.weights.constant is not None:
        hides = np.isneginf(layer.weights.constant).any()
        findings.warning(
            "masks", f"{where}the file adds constants of its own to the scores{', and hides some' if hides else ''}", ""
        )
    biases = {"attention.qkv_bias": any(linear.bias for linear in qkv)}
    biases["feed_forward.bias"] = layer.hidden.bias is not None or layer.ffn_output.bias is not None
    scale, shown = _scale(layer, (H, D, d), SCALE_CLOSE.get(dtype, 1e-4), where, findings)
    sizes = f"scores {list(scores.shape)} at batch {scores.shape[0]}, sequence {scores.shape[2]}"
    query, output = f"linear map {layer.query.linear.name!r}", f"linear map {layer.attention_output.name!r}"
    ffn = f"linear maps {layer.hidden.name!r}, {layer.ffn_output.name!r}"
    made = layer.scores.attention.get("node") or f"product {scores.name!r}"
    return {
        "norm.placement": (layer.placement, f"norm {layer.norm1.name!r} of {layer.norm1.of.root.name!r}, which is "
                           + ("x or a layer's output" if layer.placement == "pre" else "the first residual sum")),
        "norm.kind": (norm.kind, f"norm {norm.name!r}, by its values on probes"),
        "norm.epsilon": (norm.epsilon or EPSILON_FOR_NONE, norm.evidence),
        "attention.num_heads": (H, f"{made}: {sizes}"),
        "attention.projections": ("shared_by_heads" if all(shared) else "full", query),
        "attention.qkv_bias": (biases["attention.qkv_bias"], query),
        "attention.output_bias": (layer.attention_output.bias is not None, output),
        "attention.scale": (scale, shown),
        "feed_forward.d_ff": (layer.hidden.shape[-1], f"linear map {layer.hidden.name!r}"),
        "feed_forward.activation": (layer.activation.function, f"{layer.activation.name!r}, by its values on probes"),
        "feed_forward.bias": (biases["feed_forward.bias"], ffn),
    }  # fmt: skip


def _scale(
    layer: OneLayer, sizes: tuple[int, int, int], close: float, where: str, findings: Findings
) -> tuple[str, str]:
    _, D, d = sizes
    seen = layer.weights.scale
    shown = f"scores {layer.scores.name!r} are multiplied by {seen:.6g} before the softmax {layer.weights.name!r}"
    of: Callable[[int], bool] = lambda n: abs(seen * n**0.5 - 1) < close  # noqa: E731
    if of(d):
        return "head_dim", shown
    if of(D):
        return "d_model", shown
    findings.warning(
        "layer",
        f"{where}{shown}, which is neither 1/√{d} (head_dim) nor 1/√{D} (d_model)",
        "is the scale folded into the weights of query or key, or missing?",
    )
    return "head_dim", shown
