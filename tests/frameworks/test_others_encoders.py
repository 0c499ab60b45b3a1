"""The oracle against whole encoders of transformers, in float64: from token ids, or from what a convolution has made of
an image or a sound, to the hidden states, and the gradients by each parameter.

The plan, the oracle and our encoders have one author; these encoders have others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from others_encoders import ENCODERS, PAD, S, Theirs, wide
from torch import Tensor

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.masking import EndPadding
from encoder_conformance.spec.plain import whole

LIMIT = 1e-13
"""The relative error that is allowed; found were 2e-15 and less."""
PADDING = {
    "none": None,
    "right": EndPadding(kind="right", lengths=(S, 7)),
    "left": EndPadding(kind="left", lengths=(8, S)),
}
UNMASKED = ("whisper", "vit", "dinov2")
"""Encoders that take no mask."""


@dataclass(frozen=True)
class Comparison:
    """An encoder of theirs, what the specification says of it, and the inputs of both."""

    theirs: Theirs
    module: Any
    layer: Layer

    def errors(self, padding: str) -> dict[str, float]:
        """Output or parameter → the largest difference over the largest number; of outputs at valid positions."""
        case, inputs = self.asked(padding)
        due = self.due(case, inputs)
        if not self.layer.takes_ids:
            inputs = replace(inputs, x=due.pop("x"))
        evaluation = evaluate(case, Arithmetic(np.float64), case.cotangent(), inputs)
        found = {**evaluation.gradients, "output": evaluation.stages["output"][case.valid()]}
        if "x" in found:  # the class token stands at the first position of each item, where there is one
            by_x = found.pop("x")
            found |= {"class token": by_x[:, 0].sum(0)} if "class token" in due else {}
        assert set(found) == set(due)
        sizes = {name: np.abs(value).max() for name, value in due.items()}
        for name in sizes:
            if name.endswith("attention.key.bias"):  # 0, but for rounding
                sizes[name] = sizes[name.replace("key", "query")]
        return {name: float(np.abs(found[name] - due[name]).max() / sizes[name]) for name in due}

    def asked(self, padding: str) -> tuple[Case, LayerInputs]:
        situation = load().situations["whole"]
        mask = situation.mask.model_copy(update={"padding": PADDING[padding]})
        case = Case(self.layer, situation.model_copy(update={"batch": 2, "sequence": S, "mask": mask}))
        inputs = given(case)
        if self.layer.takes_ids:  # they read padding off the ids
            ids = np.where(case.valid(), np.where(inputs.x == PAD, PAD + 1, inputs.x), PAD)
            inputs = replace(inputs, x=ids)
        return case, inputs

    def due(self, case: Case, inputs: LayerInputs) -> dict[str, Array]:
        """Their output at valid positions, their gradients in the specification's names and axes, and their x."""
        places, own = self.theirs.places(self.module), dict(self.module.named_parameters())
        spec = {name: torch.tensor(value) for name, value in inputs.parameters.items()}
        assert sorted(spec) == sorted(source for place in places.values() for source in place.sources)
        with torch.no_grad():
            for name, place in places.items():
                own[name].requires_grad_().copy_(place.joined(spec, own[name].shape))
        self.module.zero_grad()
        with wide():
            answer, front = self.called(case, inputs)
            answer.backward(torch.tensor(case.cotangent()))
        gradients = {}
        for name, place in places.items():
            shapes = spec[place.sources[0]].shape
            turned = own[name].grad.reshape(-1, *(shapes[::-1] if place.transposed else shapes)[1:])
            gradients |= {source: value.numpy() for source, value in place.split(turned).items()}
        if "embeddings.cls_token" in own:
            gradients["class token"] = own["embeddings.cls_token"].grad.numpy().reshape(-1)
        front_x = {} if front is None else {"x": front.detach().numpy()}
        return {**gradients, **front_x, "output": answer.detach().numpy()[case.valid()]}

    def called(self, case: Case, inputs: LayerInputs) -> tuple[Tensor, Tensor | None]:
        """Their hidden states, and for what takes no ids what it makes of a sound or an image."""
        drawn = np.random.default_rng(3)
        if self.layer.takes_ids:
            more = {} if inputs.token_types is None else {"token_type_ids": torch.tensor(inputs.token_types)}
            valid = torch.tensor(case.valid().astype(np.int64))
            return self.module(torch.tensor(inputs.x), attention_mask=valid, **more).last_hidden_state, None
        if self.theirs.part:
            sound = torch.tensor(drawn.standard_normal((2, 4, 2 * S)))
            gelu = torch.nn.functional.gelu
            front = gelu(self.module.conv2(gelu(self.module.conv1(sound)))).permute(0, 2, 1)
            return self.module(sound).last_hidden_state, front
        image, embeddings = torch.tensor(drawn.standard_normal((2, 3, 12, 12))), self.module.embeddings
        patches = embeddings.patch_embeddings(image)
        front = torch.cat([embeddings.cls_token.expand(2, -1, -1), patches], 1)
        return self.module(image).last_hidden_state, front


@cache
def comparison(encoder: str) -> Comparison:
    with wide():  # their frequencies are made when they are built
        return Comparison(ENCODERS[encoder], ENCODERS[encoder].made(), ENCODERS[encoder].layer)


@pytest.mark.parametrize(
    ("encoder", "padding"),
    [(encoder, padding) for encoder in ENCODERS for padding in PADDING if padding == "none" or encoder not in UNMASKED],
)
def test_the_oracle_agrees_with_their_encoder(encoder: str, padding: str) -> None:
    errors = comparison(encoder).errors(padding)
    assert not {name: error for name, error in errors.items() if not error <= LIMIT}


def _changed(right: Comparison, **parts: Mapping[str, object] | None) -> Comparison:
    keys = whole(right.layer)
    merged = {name: part if part is None else {**keys[name], **part} for name, part in parts.items()}
    return replace(right, layer=Layer.model_validate(keys | merged, strict=False))


MISTAKES: dict[str, tuple[str, Callable[[Comparison], Comparison]]] = {
    "positions that count padding": (
        "roberta",
        lambda right: _changed(right, embedding={"position_table": {"rows": 16, "first": 2, "counted": "all"}}),
    ),
    "positions from row 0": (
        "roberta",
        lambda right: _changed(right, embedding={"position_table": {"rows": 16, "first": 0, "counted": "valid"}}),
    ),
    "the theta of local layers in all": (
        "modernbert",
        lambda right: _changed(right, stack={"global_layers": {"first": 0, "every": 3, "theta": 1e4}}),
    ),
    "global layers one later": (
        "modernbert",
        lambda right: _changed(right, stack={"global_layers": {"first": 1, "every": 3, "theta": 160000.0}}),
    ),
    "a window one wider": (
        "modernbert",
        lambda right: _changed(right, attention={"window": {"left": 2, "right": 3}}),
    ),
}


@pytest.mark.parametrize(("encoder", "mistake"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_seen(encoder: str, mistake: Callable[[Comparison], Comparison]) -> None:
    wrong = mistake(comparison(encoder))
    assert max(wrong.errors("left").values()) > 1e7 * LIMIT
