"""The oracle against transformers' own encoder layers, in float64: the output, and the gradients by x and by each
parameter.

The plan, its forms and our encoders share authors; these layers share nothing with them. Our side of each comparison is
made of `specs/published.yaml` alone, theirs of their own class and configuration: so its entries are held, too.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from re import fullmatch
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from pydantic import ValidationError
from torch import nn

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.published import Bias, PublishedEncoder, published

AGREES = 1e-12
"""Relative error of two float64 computations of one layer. Found: up to 1e-14."""
SITUATIONS = ("no-mask", "padding-right", "low-variance")
"""The last one is where a norm's epsilon decides."""
OF_BERT = ("hidden_size", "num_attention_heads", "intermediate_size")
OF_BART = ("d_model", "encoder_attention_heads", "encoder_ffn_dim")


@dataclass(frozen=True)
class Theirs:
    """An encoder layer of transformers.

    `norms`: the paths of what the specification calls norm1 and norm2. `sizes`: the configuration's names of d_model,
    num_heads and d_ff. `choices`: what the configuration says other than by default. `needs_mask`: without a mask it
    would be causal; its model gives it one always.
    """

    layer: str
    config: str
    norms: tuple[str, str]
    sizes: tuple[str, str, str] = OF_BERT
    choices: Mapping[str, Any] = field(default_factory=dict)
    needs_mask: bool = False

    def made(self, encoder: str, layer: Layer) -> nn.Module:
        """One with the sizes of `layer`, in float64. Raises AttributeError where transformers has it no more."""
        numbers = (layer.d_model, layer.attention.num_heads, layer.feed_forward.d_ff)
        sizes = dict(zip(self.sizes, numbers, strict=True))
        config = getattr(transformers, self.config)(**sizes, **self.choices, attn_implementation="sdpa")
        module = importlib.import_module(f"transformers.models.{encoder}.modeling_{encoder}")
        made: nn.Module = getattr(module, self.layer)(config)
        return made.eval().double()


def _and(first: Theirs, **other: Any) -> tuple[Theirs, Theirs]:
    """A layer, and the same with other choices of its configuration."""
    return first, replace(first, choices=other)


_LAYER_NORMS = ("layer_norm", "final_layer_norm")
_POST = ("attention.output.LayerNorm", "output.LayerNorm")
_AROUND = ("layernorm_before", "layernorm_after")
_NUMBERED = ("layer_norm1", "layer_norm2")
_SELF = ("self_attn_layer_norm", "final_layer_norm")
LAYERS: dict[str, tuple[Theirs, ...]] = {
    "bert": (Theirs("BertLayer", "BertConfig", _POST),),
    "roberta": _and(Theirs("RobertaLayer", "RobertaConfig", _POST), layer_norm_eps=1e-5),
    "electra": (Theirs("ElectraLayer", "ElectraConfig", _POST),),
    "distilbert": (
        Theirs(
            "TransformerBlock",
            "DistilBertConfig",
            ("sa_layer_norm", "output_layer_norm"),
            ("dim", "n_heads", "hidden_dim"),
        ),
    ),
    "albert": (Theirs("AlbertLayer", "AlbertConfig", ("attention.LayerNorm", "full_layer_layer_norm")),),
    "megatron_bert": (Theirs("MegatronBertLayer", "MegatronBertConfig", ("attention.ln", "ln")),),
    "xlm_roberta_xl": (
        Theirs("XLMRobertaXLLayer", "XLMRobertaXLConfig", ("attention.self_attn_layer_norm", "LayerNorm")),
    ),
    "roberta_prelayernorm": (
        Theirs(
            "RobertaPreLayerNormLayer", "RobertaPreLayerNormConfig", ("attention.LayerNorm", "intermediate.LayerNorm")
        ),
    ),
    "bart": (Theirs("BartEncoderLayer", "BartConfig", _SELF, OF_BART),),
    "marian": _and(Theirs("MarianEncoderLayer", "MarianConfig", _SELF, OF_BART), activation_function="silu"),
    "m2m_100": (Theirs("M2M100EncoderLayer", "M2M100Config", _SELF, OF_BART),),
    "wav2vec2": (
        Theirs("Wav2Vec2EncoderLayer", "Wav2Vec2Config", _LAYER_NORMS),
        Theirs("Wav2Vec2EncoderLayerStableLayerNorm", "Wav2Vec2Config", _LAYER_NORMS),
    ),
    "hubert": (
        Theirs("HubertEncoderLayer", "HubertConfig", _LAYER_NORMS),
        Theirs("HubertEncoderLayerStableLayerNorm", "HubertConfig", _LAYER_NORMS),
    ),
    "vit": _and(Theirs("ViTLayer", "ViTConfig", _AROUND), qkv_bias=False),
    "deit": _and(Theirs("DeiTLayer", "DeiTConfig", _AROUND), qkv_bias=False),
    "audio_spectrogram_transformer": _and(Theirs("ASTLayer", "ASTConfig", _AROUND), qkv_bias=False),
    "siglip": (Theirs("SiglipEncoderLayer", "SiglipVisionConfig", _NUMBERED),),
    "siglip2": (Theirs("Siglip2EncoderLayer", "Siglip2VisionConfig", _NUMBERED),),
    "mllama": (
        Theirs(
            "MllamaVisionEncoderLayer",
            "MllamaVisionConfig",
            ("input_layernorm", "post_attention_layernorm"),
            ("hidden_size", "attention_heads", "intermediate_size"),
            needs_mask=True,
        ),
    ),
}
"""Encoder → a layer for each combination of what `specs/published.yaml` has of it, in that order."""

_ATTENTION = r"(attention|attention\.self|self_attn)\."
LINEAR_MAPS = {
    **{
        f"attention.{name}": rf"{_ATTENTION}({name}|{name[0]}_lin|{name[0]}_proj)" for name in ("query", "key", "value")
    },
    "attention.output": _ATTENTION + r"(output\.dense|dense|out_lin|out_proj|o_proj)",
    "feed_forward.hidden": r"intermediate\.dense|(mlp\.)?fc1|ffn|ffn\.lin1|feed_forward\.intermediate_dense",
    "feed_forward.output": r"output\.dense|(mlp\.)?fc2|ffn_output|ffn\.lin2|feed_forward\.output_dense",
}
"""The specification's linear map → the whole path that it has in their layers, one way or another."""
KEY_BIAS = "attention.key.bias"
"""It adds the same to all scores of a query, and so changes no weight: its gradient is 0, and what is found is noise."""


def layers_of(encoder: PublishedEncoder) -> Iterator[Layer]:
    """A layer for each combination of the encoder's choices, at the sizes of pre-gelu, as code in float64 has it.

    None for an encoder that the layer language cannot describe.
    """
    norm, biases, network = encoder.norm, encoder.biases, encoder.feed_forward
    if encoder.kind != "model" or encoder.inside or network.gated or not biases.query == biases.key == biases.value:
        return
    base = load().layers["pre-gelu"]
    combinations = product(norm.placement, norm.epsilon, network.activation, _either(biases.query))
    for placement, epsilon, activation, qkv_bias in combinations:
        attention = {"qkv_bias": qkv_bias, "output_bias": biases.output, "scale": encoder.attention.scale}
        own = {
            "norm": {"placement": placement, "kind": norm.kind, "epsilon": epsilon},
            "attention": attention,
            "feed_forward": {"activation": activation, "bias": biases.feed_forward},
        }
        try:
            yield changed(base, **own).with_decimal_epsilon
        except ValidationError:  # a value that the language does not have
            continue


def _either(bias: Bias) -> tuple[bool, ...]:
    return (True, False) if bias == "either" else (bias,)


def changed(layer: Layer, **parts: dict[str, Any]) -> Layer:
    """The layer with other keys in some of its parts. Raises ValidationError for what the language does not have."""
    keys = whole(layer)
    return Layer.model_validate(keys | {name: keys[name] | part for name, part in parts.items()})


@dataclass(frozen=True)
class Place:
    """The parameter of theirs that is one of ours, transposed or not."""

    name: str
    transposed: bool = False

    def turned(self, value: Array) -> Array:
        return value.T if self.transposed else value


def places(module: nn.Module, norms: tuple[str, str]) -> dict[str, Place]:
    """Parameter of the specification → its place in their layer. Every parameter of theirs has one."""
    found: dict[str, Place] = {}
    for name in dict(module.named_parameters()):
        path, _, leaf = name.rpartition(".")
        if path in norms:
            owner, role = f"norm{1 + norms.index(path)}", {"weight": "gain", "bias": "shift"}[leaf]
        else:
            (owner,), role = [own for own, pattern in LINEAR_MAPS.items() if fullmatch(pattern, path)], leaf
        assert f"{owner}.{role}" not in found
        found[f"{owner}.{role}"] = Place(name, transposed=role == "weight")
    return found


@dataclass(frozen=True)
class Comparison:
    """A layer of the specification, the layer of theirs that it should be, and where each parameter is in that."""

    layer: Layer
    module: nn.Module
    places: Mapping[str, Place]
    needs_mask: bool

    def errors(self, situation: str) -> dict[str, float]:
        """Output, x or a parameter → the largest difference of the two, relative to the largest number."""
        case = Case(self.layer, load().situations[situation])
        due, rows = self.theirs(case), case.valid()
        oracle = evaluate(case, Arithmetic(np.float64), case.cotangent())
        ours = {"output": oracle.stages["output"], **oracle.gradients}
        assert set(ours) == set(due)
        ours["output"], due["output"] = ours["output"][rows], due["output"][rows]
        largest = {name: np.abs(value).max() for name, value in due.items()}
        if KEY_BIAS in due:
            largest[KEY_BIAS] = largest["attention.query.bias"]
        return {name: float(np.abs(ours[name] - due[name]).max() / largest[name]) for name in due}

    def theirs(self, case: Case) -> dict[str, Array]:
        """Their output, and their gradients by x and by each parameter, with the specification's names and axes."""
        drawn = {self.places[name].name: self.places[name].turned(value) for name, value in case.parameters().items()}
        self.module.load_state_dict({name: torch.tensor(value) for name, value in drawn.items()}, strict=True)
        self.module.zero_grad()
        x = torch.tensor(case.x(), requires_grad=True)
        output = self.module(x, self.mask(case))
        output = output[0] if isinstance(output, tuple) else output
        output.backward(torch.tensor(case.cotangent()))
        own = dict(self.module.named_parameters())
        gradients = {name: place.turned(own[place.name].grad.numpy()) for name, place in self.places.items()}
        return {"output": output.detach().numpy(), "x": x.grad.numpy(), **gradients}

    def mask(self, case: Case) -> torch.Tensor | None:
        """What is added to the scores, [B, 1, S, S]: the one form that each of their layers takes."""
        B, S, _ = case.x_shape
        allowed = case.mask()
        if allowed is None:
            return torch.zeros(B, 1, S, S, dtype=torch.float64) if self.needs_mask else None
        return torch.tensor(np.broadcast_to(np.where(allowed, 0.0, -np.inf), (B, 1, S, S)).copy())


def comparisons(encoder: str) -> list[Comparison]:
    (entry,) = [each for each in published() if each.encoder == encoder]
    found = []
    for layer, theirs in zip(layers_of(entry), LAYERS[encoder], strict=True):
        module = theirs.made(encoder, layer)
        found.append(Comparison(layer, module, places(module, theirs.norms), theirs.needs_mask))
    return found


def test_every_encoder_that_the_layer_language_describes_is_compared() -> None:
    described = {each.encoder: len([*layers_of(each)]) for each in published()}
    assert {name: len(theirs) for name, theirs in LAYERS.items()} == {name: n for name, n in described.items() if n}


@pytest.mark.parametrize("encoder", LAYERS)
def test_the_oracle_agrees_with_their_layer(encoder: str) -> None:
    for comparison, situation in product(comparisons(encoder), SITUATIONS):
        wrong = {name: error for name, error in comparison.errors(situation).items() if not error < AGREES}
        assert not wrong, (comparison.layer.norm, comparison.layer.feed_forward.activation, situation)


def _of_layer(**parts: dict[str, Any]) -> Callable[[Comparison], Comparison]:
    return lambda right: replace(right, layer=changed(right.layer, **parts))


def _exchanged(one: str, other: str) -> Callable[[Comparison], Comparison]:
    """The weights (or gains) of two in each other's place."""
    return lambda right: replace(right, places={**right.places, one: right.places[other], other: right.places[one]})


def _other_activation(right: Comparison) -> Comparison:
    other = "gelu" if right.layer.feed_forward.activation == "gelu_tanh" else "gelu_tanh"
    return _of_layer(feed_forward={"activation": other})(right)


def _other_placement(right: Comparison) -> Comparison:
    return _of_layer(norm={"placement": "post" if right.layer.norm.placement == "pre" else "pre"})(right)


def _query_as_it_is(right: Comparison) -> Comparison:
    query = replace(right.places["attention.query.weight"], transposed=False)
    return replace(right, places={**right.places, "attention.query.weight": query})


MISTAKES: dict[str, Callable[[Comparison], Comparison]] = {
    "another epsilon": _of_layer(norm={"epsilon": 1e-3}),
    "another activation": _other_activation,
    "another placement": _other_placement,
    "another scale": _of_layer(attention={"scale": "d_model"}),
    "query not transposed": _query_as_it_is,
    "query for key": _exchanged("attention.query.weight", "attention.key.weight"),
    "one norm for the other": _exchanged("norm1.gain", "norm2.gain"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen_at_every_layer(mistake: str) -> None:
    unseen = []
    for encoder in LAYERS:
        for right in comparisons(encoder):
            errors = MISTAKES[mistake](right).errors("no-mask")
            unseen += [encoder] if max(errors.values()) < 1e6 * AGREES else []
    assert not unseen
