"""What is unusual in a layer that was read off a module is said, with whose choice it is."""

from typing import Any

import pytest

from encoder_conformance.module_check.unusual import unusual
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load


def layer(base: str = "post-gelu-bert", **changes: Any) -> Layer:
    """The layer at BERT's sizes, with `part__key` changed."""
    fields = load().layers[base].model_dump()
    fields["d_model"], fields["attention"]["num_heads"], fields["feed_forward"]["d_ff"] = 768, 12, 3072
    for name, value in changes.items():
        part, _, key = name.partition("__")
        fields[part][key] = value
    return Layer.model_validate(fields)


@pytest.mark.parametrize(
    "usual",
    [
        layer(),
        layer(norm__epsilon=1e-5),
        layer("pre-gelu", norm__epsilon=1e-6),
        layer("pre-gelu", norm__epsilon=1e-5),
        layer("post-relu"),
    ],
)
def test_published_encoders_are_usual(usual: Layer) -> None:
    assert unusual(usual) == ()


@pytest.mark.parametrize(
    ("odd", "key", "said"),
    [
        (layer(norm__epsilon=1e-3), "norm.epsilon", "epsilon 0.001: Keras' default; bert has 1e-12"),
        (layer(norm__epsilon=1e-6), "norm.epsilon", "roberta has 1e-12 or 1e-05"),
        (layer(feed_forward__activation="relu"), "norm.epsilon", "epsilon 1e-12 with relu in a post-norm layer; torch"),
        (layer("stack-pre-gelu", stack__final_norm=False), "stack.final_norm", "without a norm after its last layer"),
        (layer(feed_forward__activation="gelu_tanh"), "feed_forward.activation", "GELU by tanh, as albert;"),
        (
            layer("pre-gelu", feed_forward__activation="gelu_tanh"),
            "feed_forward.activation",
            "BERT, RoBERTa, ViT and Whisper have erf",
        ),
        (layer("post-relu", feed_forward__activation="silu"), "feed_forward.activation", "silu, as marian; most"),
        (layer("pre-gelu", feed_forward__activation="silu"), "feed_forward.activation", "no published encoder here"),
        (layer(attention__scale="d_model"), "attention.scale", "root of d_model"),
        (layer(attention__output_bias=False), "attention.qkv_bias", "query, key and value have a bias"),
        (layer(attention__num_heads=3), "attention.num_heads", "3 heads of 256 features"),
        (layer(attention__projections="shared_by_heads"), "attention.projections", "share one projection"),
    ],
)
def test_a_choice_that_none_makes_is_named(odd: Layer, key: str, said: str) -> None:
    found = {each.key: each.text for each in unusual(odd)}
    assert said in found[key]
