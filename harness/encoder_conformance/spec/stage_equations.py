"""The equation of each stage of an encoder layer, as the specification has it (clauses E-1 to E-13, E-17)."""

from collections.abc import Iterator
from functools import lru_cache

from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer

ACTIVATIONS = {
    "relu": "maximum(ffn_hidden, 0)",
    "gelu": "0.5 * ffn_hidden * (1 + erf(ffn_hidden / sqrt(2)))",
    "gelu_tanh": "0.5 * ffn_hidden * (1 + tanh(sqrt(2 / pi) * (ffn_hidden + 0.044715 * ffn_hidden ** 3)))",
    "silu": "ffn_hidden * sigmoid(ffn_hidden)",
}


def stage_equations(layer: Layer) -> dict[str, Equation]:
    """Stage → its equation, of one layer or of attention alone; {} of a stack, whose stages are whole layers. An
    equation names only stages before its own."""
    return {} if layer.is_stack else {stage: _parsed(text) for stage, text in _equations(layer)}


_parsed = lru_cache(maxsize=512)(Equation)
"""Layers share most of their equations, and each case asks for them."""


def _equations(layer: Layer) -> Iterator[tuple[str, str]]:
    pre, alone = layer.norm.placement == "pre", layer.takes_memory
    given = "norm1" if pre else "x"
    if alone:
        yield from _attention(layer, "x", "memory")
        yield "output", "attention_output"
        return
    if pre:
        yield "norm1", _norm(layer, "norm1", "x")
    yield from _attention(layer, given, given)
    yield "residual1", "x + attention_output"
    yield ("norm2", _norm(layer, "norm2", "residual1")) if pre else ("norm1", _norm(layer, "norm1", "residual1"))
    yield from _feed_forward(layer, "norm2" if pre else "norm1")
    yield "residual2", "residual1 + ffn_output" if pre else "norm1 + ffn_output"
    if not pre:
        yield "norm2", _norm(layer, "norm2", "residual2")
    yield "output", "residual2" if pre else "norm2"


def _attention(layer: Layer, queries: str, keys: str) -> Iterator[tuple[str, str]]:
    attention = layer.attention
    shared = attention.projections == "shared_by_heads"
    for name, source in (("query", queries), ("key", keys), ("value", keys)):
        weight, bias = f"attention.{name}.weight", f"attention.{name}.bias"
        if shared:
            yield name, f"by_heads({source}, {weight}, {bias})"
        else:
            yield name, _linear(source, weight, bias, has_bias=attention.qkv_bias)
        yield f"{name}_heads", f"split_heads({name})"
    yield "attention_scores", f"query_heads @ transpose(key_heads) / sqrt({attention.scale})"
    yield "attention_weights", "softmax(attention_scores + bias, mask)"
    yield "context", "attention_weights @ value_heads"
    yield "context_merged", "merge_heads(context)"
    weight, bias = "attention.output.weight", "attention.output.bias"
    yield "attention_output", _linear("context_merged", weight, bias, has_bias=attention.output_bias)


def _feed_forward(layer: Layer, given: str) -> Iterator[tuple[str, str]]:
    has_bias = layer.feed_forward.bias
    yield "ffn_hidden", _linear(given, "feed_forward.hidden.weight", "feed_forward.hidden.bias", has_bias=has_bias)
    yield "ffn_activation", ACTIVATIONS[layer.feed_forward.activation]
    weight, bias = "feed_forward.output.weight", "feed_forward.output.bias"
    yield "ffn_output", _linear("ffn_activation", weight, bias, has_bias=has_bias)


def _linear(source: str, weight: str, bias: str, *, has_bias: bool) -> str:
    return f"{source} @ {weight} + {bias}" if has_bias else f"{source} @ {weight}"


def _norm(layer: Layer, name: str, source: str) -> str:
    if layer.norm.kind == "rms_norm":
        return f"{source} / sqrt(mean({source} ** 2, -1) + epsilon) * {name}.gain"
    return f"({source} - mean({source}, -1)) / sqrt(var({source}, -1) + epsilon) * {name}.gain + {name}.shift"
