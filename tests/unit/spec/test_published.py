"""What published encoders choose, and what is said of a layer that none of them is."""

import json
from collections import Counter
from pathlib import Path

import pytest

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationEvidence, ValidationRequest
from encoder_conformance.commands.validate.phases.layer import assess
from encoder_conformance.protocol.arguments import XArgument
from encoder_conformance.protocol.description import FileDescription, Port, Roles
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load, published_layers
from encoder_conformance.spec.published import published, unusual


def changed(layer: str = "bert-base", **choices: object) -> Layer:
    """A layer of the specification with other choices: part__key = value."""
    tree = load().layers[layer].model_dump(mode="json")
    for name, value in choices.items():
        part, _, key = name.partition("__")
        tree[part][key] = value
    return Layer.model_validate(tree, strict=False)


def test_each_encoder_is_there_once_and_has_a_source_of_its_own() -> None:
    names = Counter(each.encoder for each in published())
    assert set(names.values()) == {1}
    assert len(names) > 40
    assert len({each.source for each in published()}) == len(names)


@pytest.mark.parametrize("layer", ["bert-base", "vit-base", "post-relu-512", "pre-gelu-512"])
def test_a_published_encoder_is_not_unusual(layer: str) -> None:
    assert unusual(load().layers[layer]) == ()


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"norm__epsilon": 1e-3}, "norm.epsilon is 0.001 in a post-norm layer_norm, which no published encoder known "
         "here has; usual: 1e-12 (bert, roberta, electra …)"),
        ({"norm__epsilon": 1e-6}, "norm.epsilon is 1e-06 in a post-norm layer_norm"),
        ({"norm__kind": "rms_norm"}, "norm is post-norm rms_norm"),
        ({"attention__scale": "d_model"}, "attention.scale is 1/√d_model = 1/√768, which no published encoder known "
         "here has; usual: 1/√head_dim = 1/√64"),
        ({"attention__scale": 64.0**2}, "attention.scale is 1/√4096 = 1/head_dim, which no"),
        ({"attention__scale": 12.0}, "attention.scale is 1/√12 = 1/√num_heads, which no"),
        ({"attention__scale": 1.0}, "attention.scale is 1, which t5, umt5, embedding_gemma2 have beside a position "
         "bias or normed queries and keys; usual: 1/√head_dim = 1/√64"),
        ({"attention__num_heads": 16}, "attention.num_heads is 16, of 48 features each"),
        ({"feed_forward__activation": "relu"}, "feed_forward.activation relu, which no published encoder known "
         "here has; usual: feed_forward.activation gelu (bert, roberta, electra …)"),
        ({"attention__output_bias": False}, "usual: attention.output_bias true (bert, roberta, electra …)"),
    ],
)  # fmt: skip
def test_what_no_published_encoder_chooses_is_named_with_what_is_usual(choices: dict[str, object], said: str) -> None:
    [found] = unusual(changed(**choices))
    assert said in str(found)


def test_a_combination_is_named_with_so_many_choices_that_none_has_them_all() -> None:
    tree = load().layers["post-relu-512"].model_dump()
    tree["attention"] |= {"qkv_bias": False, "output_bias": False}
    [found] = unusual(Layer.model_validate(tree, strict=False))
    assert "with norm.placement post, feed_forward.activation relu and attention.qkv_bias false, which no" in str(found)


def test_a_small_layer_has_heads_of_any_size() -> None:
    assert unusual(load().layers["post-relu"]) == ()


@pytest.mark.parametrize(
    ("layer", "choices", "said"),
    [
        ("bert-base", {"norm__epsilon": 1e-3}, "0.001 is Keras' default"),
        ("bert-base", {"attention__num_heads": 3}, "attention.num_heads is 3, of 256 features each"),
        ("bert-base", {"attention__projections": "shared_by_heads"}, "usual: a projection for each head"),
        ("bert-base", {"feed_forward__activation": "gelu_tanh"}, "is gelu_tanh, as in albert; BERT, RoBERTa"),
        ("pre-gelu-512", {"feed_forward__activation": "silu"}, "with feed_forward.activation silu"),
        ("stack-pre-gelu", {"stack__final_norm": False}, "without a norm after its last layer"),
    ],
)  # fmt: skip
def test_what_stands_for_another_choice_by_a_slip_is_named(layer: str, choices: dict[str, object], said: str) -> None:
    [found] = unusual(changed(layer, **choices))
    assert said in str(found)


def test_check_and_validate_warn_of_the_same_in_every_layer_of_the_specification() -> None:
    own = {name: as_check_says(layer) for name, layer in load().layers.items()}
    assert own == {name: as_validate_says(layer) for name, layer in load().layers.items()}
    assert sum(map(bool, own.values())) == 26


def as_check_says(layer: Layer) -> list[str]:
    empty = dict.fromkeys(ModuleDescription.model_fields, ())
    none = dict.fromkeys(("stated", "not_read", "proof", "searched", "heads_denied", "chance", "as_given"))
    known = {"layer": layer, "heads_known": True, **none}
    known |= {"parameters": {}, "aliases": {}, "lines": {}, "kept": None, "x": XArgument.model_construct(before=None)}
    described = ModuleDescription.model_construct(**{**empty, **known})
    return [finding.message for finding in findings_of(described) if finding.severity == "warning"]


def as_validate_says(layer: Layer) -> list[str]:
    port = Port(name="x", dtype="float32", shape=None)
    roles = Roles(x="x", output="x", masks=())
    described = FileDescription(findings=(), layer=layer, roles=roles, inputs=(port,))
    request = ValidationRequest(Path("model.onnx"), None, None, None, (), {}, None)
    return [
        finding.message for finding in assess(ValidationEvidence(ExaminedFile(request, described, {}), None)).findings
    ]


def test_two_unusual_choices_are_two_warnings() -> None:
    found = unusual(changed(norm__epsilon=1e-3, attention__scale="d_model"))
    assert [each.choice for each in found] == ["norm.epsilon", "attention.scale"]


@pytest.mark.parametrize("name", published_layers())
def test_a_published_layer_is_its_encoder_s_and_not_unusual(name: str) -> None:
    """Of the activations that also stand for others by a slip, it is said who has them."""
    layer = published_layers()[name]
    assert [each.encoder for each in published() if layer in each.choices]
    assert {each.choice for each in unusual(layer)} <= {"feed_forward.activation"}
    assert layer.source


@pytest.mark.parametrize(
    ("name", "part", "keys", "said"),
    [
        ("modernbert", "attention", {"rope": {"theta": 10000.0, "pairing": "interleaved"}},
         "attention.rope halves (modernbert)"),
        ("roformer", "attention", {"rope": {"theta": 10000.0, "pairing": "halves"}},
         "norm.epsilon 1e-05 (jina_embeddings_v3)"),
        ("gemma3", "attention", {"qk_norm": {"kind": "rms_norm", "over": "all", "shift": False}},
         "attention.qk_norm rms_norm over a head (t5gemma2, gemma3)"),
        ("modernbert", "feed_forward", {"gated": False}, "feed_forward.gated true (modernbert)"),
    ],
)  # fmt: skip
def test_another_choice_of_a_key_that_came_later_is_named(
    name: str, part: str, keys: dict[str, object], said: str
) -> None:
    tree = published_layers()[name].model_dump(mode="json")
    tree[part] |= keys
    assert said in " ".join(map(str, unusual(Layer.model_validate_json(json.dumps(tree)))))
