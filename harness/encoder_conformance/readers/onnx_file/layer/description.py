"""Describes a matched encoder in the specification's layer language, with evidence for each choice."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from encoder_conformance.protocol.description import Fact
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.layer.structure import Encoder, EncoderLayer
from encoder_conformance.readers.onnx_file.tracing.expressions import Activation, Linear, Scores, TracedNorm, Weights
from encoder_conformance.spec.plan import COMMON_BIAS

EPSILON_FOR_NONE = float(np.float32(1e-12))
"""What a norm without an epsilon is judged as; the specification has none without."""
ACTIVATION_CLOSE = {"float16": 4e-3, "bfloat16": 3e-2}
"""The largest error of an activation whose constants are rounded to the format; 0 in wider ones."""
SCALE_CLOSE = {"float16": 2e-3, "bfloat16": 1e-2}
"""The largest relative error of a scale that is rounded to the format; 1e-4 in wider ones."""


def describe(encoder: Encoder, d_model: int, format: str, findings: Findings) -> tuple[dict[str, Any], list[Fact]]:
    """The layer as `layer.schema.json` has it, `fully_masked_row` yet unspecified, and the facts that it follows from.
    `format` is what the file computes in."""
    layers, final = encoder.layers, encoder.final_norm
    several = len(layers) > 1
    described: list[dict[str, Fact]] = []
    for number, layer in enumerate(layers):
        where = f"layer {number}: " if several else ""
        _check_layer(layer, format, where, findings)
        described.append({fact.key: fact for fact in _choices(layer, format, where, findings)})
    _check_alike(described, findings)
    choices = {key: fact.value for key, fact in described[0].items()}
    _check_final_norm(final, choices, findings)
    facts = [
        *described[0].values(),
        _fact("stack.layers", len(layers), "counted from the output back to x"),
        _fact("stack.final_norm", final is not None, f"norm {final.name!r}" if final else "none follows"),
    ]
    return _layer(facts, d_model), facts


def _layer(facts: list[Fact], d_model: int) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {"norm": {}, "attention": {}, "feed_forward": {}, "stack": {}}
    for fact in facts:
        part, _, name = fact.key.partition(".")
        parts[part][name] = fact.value
    return {
        "layer": "from-file",
        "title": "The layer that a file holds",
        "clauses": ["L-1"],
        "family": "stacks" if parts["stack"]["layers"] > 1 or parts["stack"]["final_norm"] else "small",
        "d_model": d_model,
        "norm": parts["norm"],
        "attention": {**parts["attention"], "masked_score": "minus_infinity", "fully_masked_row": "unspecified"},
        "feed_forward": parts["feed_forward"],
        "dropout": dict.fromkeys(("attention_weights", "attention_output", "ffn_activation", "ffn_output"), 0.0),
        "stack": parts["stack"],
        "embedding": None,
        "padded_rows": "unspecified",
        "padding_content": "finite",
    }


def _fact(key: str, value: Any, evidence: str) -> Fact:
    return Fact(key=key, value=value, evidence=evidence)


def _check_alike(described: list[dict[str, Fact]], findings: Findings) -> None:
    """The layers of a stack are equal in their choices."""
    first = described[0]
    for number, choices in enumerate(described):
        for key in {**first, **choices}:
            one, other = (_value(facts, key) for facts in (first, choices))
            if one != other:
                differ = f"{key} is {one} in layer 0, {other} in layer {number}"
                hint = "the specification's stack is of layers that are equal in their choices (E-14)"
                findings.error("layer", f"the layers of the stack differ: {differ}", hint)


def _value(facts: Mapping[str, Fact], key: str) -> Any:
    """The value of a choice; of a bias that has no key of its own, what the key of its like says."""
    part = key.partition(".")[0]
    return facts[key if key in facts else f"{part}.{COMMON_BIAS[part]}"].value


def _check_final_norm(final: TracedNorm | None, choices: dict[str, Any], findings: Findings) -> None:
    kind, epsilon = choices["norm.kind"], choices["norm.epsilon"]
    if final is not None and (final.form.kind, final.form.epsilon or EPSILON_FOR_NONE) != (kind, epsilon):
        own = f"{final.form.kind} with epsilon {final.form.epsilon:g}"
        message = f"the final norm is {own}, the layers' {kind} with {epsilon:g}"
        findings.error("layer", message, "in the specification they are equal (E-14)")


def _check_layer(layer: EncoderLayer, format: str, where: str, findings: Findings) -> None:
    """Reports what the layer language cannot say of this layer, or not exactly."""
    D, H, d = _sizes(layer)
    shared = _shared(layer)
    if any(shared) and not all(shared):
        findings.error("layer", f"{where}some of query, key and value are shared by the heads, and some are not")
    if H * d != D:
        findings.error("layer", f"{where}{H} heads of {d} features are {H * d} wide, and d_model is {D}")
    _check_norms(layer, format, where, findings)
    activation, constant = layer.first(Activation), layer.first(Weights).constant
    if activation.error > ACTIVATION_CLOSE.get(format, 0):
        message = f"{where}the activation is no {activation.function} exactly: off by up to {activation.error:.2g}"
        findings.warning("layer", message, "it is taken for one")
    if constant is not None:
        hides = ", and hides some" if np.isneginf(constant).any() else ""
        findings.warning("masks", f"{where}the file adds constants of its own to the scores{hides}")


def _check_norms(layer: EncoderLayer, format: str, where: str, findings: Findings) -> None:
    forms = {name: norm.form for name, norm in layer.of(TracedNorm).items()}
    if len({(form.kind, form.epsilon) for form in forms.values()}) > 1:
        both = " and ".join(f"{name} is {form.kind} with epsilon {form.epsilon:g}" for name, form in forms.items())
        findings.error("layer", f"{where}the two norms differ: {both}", "in the specification they are equal")
    for name, form in forms.items():
        if not form.epsilon:
            findings.error(
                "layer",
                f"{where}{name} adds an epsilon of 0 ({form.evidence}): a row without variance gives NaN",
                f"export with an epsilon that {format} holds; it is judged as one of {EPSILON_FOR_NONE:.0e}",
            )
        if form.error:
            message = f"{where}{name} is no {form.kind} exactly: {form.error:.2g} off, relatively"
            findings.warning("layer", message, "it is taken for one")


def _choices(layer: EncoderLayer, format: str, where: str, findings: Findings) -> Iterator[Fact]:
    norm, scores, linears = layer.first(TracedNorm), layer.first(Scores), layer.of(Linear)
    of_linears = {stage: f"linear map {linear.name!r}" for stage, linear in linears.items()}
    source = "x or a layer's output" if layer.placement == "pre" else "the first residual sum"
    yield _fact(
        "norm.placement", layer.placement, f"norm {norm.name!r} of {norm.of.operation.name!r}, which is {source}"
    )
    yield _fact("norm.kind", norm.form.kind, f"norm {norm.name!r}, by its values on probes")
    yield _fact("norm.epsilon", norm.form.epsilon or EPSILON_FOR_NONE, norm.form.evidence)
    made = scores.fused_in or f"product {scores.name!r}"
    at = f"scores {list(scores.shape)} at batch {scores.shape[0]}, sequence {scores.shape[2]}"
    yield _fact("attention.num_heads", scores.shape[1], f"{made}: {at}")
    yield _fact("attention.projections", "shared_by_heads" if all(_shared(layer)) else "full", of_linears["query"])
    yield _fact("attention.qkv_bias", any(linears[name].bias for name in layer.columns), of_linears["query"])
    yield from _own_biases("attention", {name: linears[name] for name in layer.columns})
    biased = linears["attention_output"].bias is not None
    yield _fact("attention.output_bias", biased, of_linears["attention_output"])
    yield _scale(layer, SCALE_CLOSE.get(format, 1e-4), where, findings)
    hidden, output, activation = linears["ffn_hidden"], linears["ffn_output"], layer.first(Activation)
    yield _fact("feed_forward.d_ff", hidden.shape[-1], of_linears["ffn_hidden"])
    yield _fact("feed_forward.activation", activation.function, f"{activation.name!r}, by its values on probes")
    biased = hidden.bias is not None or output.bias is not None
    yield _fact("feed_forward.bias", biased, f"linear maps {hidden.name!r}, {output.name!r}")
    yield from _own_biases("feed_forward", {"hidden": hidden, "output": output})


def _own_biases(part: str, alike: Mapping[str, Linear]) -> Iterator[Fact]:
    """The own key of each map that has no bias where another of them has (L-3)."""
    if any(linear.bias for linear in alike.values()):
        for name, linear in alike.items():
            if linear.bias is None:
                yield _fact(f"{part}.{name}_bias", False, f"linear map {linear.name!r}")


def _shared(layer: EncoderLayer) -> list[bool]:
    """Whether the heads share one map, of query, key and value."""
    return [layer.of(Linear)[name].heads > 1 for name in layer.columns]


def _sizes(layer: EncoderLayer) -> tuple[int, int, int]:
    """D, H, d."""
    H = layer.first(Scores).shape[1]
    return layer.first(TracedNorm).shape[-1], H, layer.columns["query"].size // H


def _scale(layer: EncoderLayer, close: float, where: str, findings: Findings) -> Fact:
    D, _, d = _sizes(layer)
    weights = layer.first(Weights)
    evidence = f"scores {weights.of.name!r} are multiplied by {weights.scale:.6g} before the softmax {weights.name!r}"
    for name, n in (("head_dim", d), ("d_model", D)):
        if abs(weights.scale * n**0.5 - 1) < close:
            return _fact("attention.scale", name, evidence)
    message = f"{where}{evidence}, which is neither 1/√{d} (head_dim) nor 1/√{D} (d_model)"
    findings.warning("layer", message, "is the scale folded into the weights of query or key, or missing?")
    return _fact("attention.scale", "head_dim", evidence)
