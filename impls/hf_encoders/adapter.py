"""Drives transformers' own encoder layers, each made from its configuration, with weights that are given to it."""

import os
from typing import Any

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"
from torch import Tensor, nn

from encoder_conformance import Array, Masks, ParameterMap, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.hf_encoders.driving import Driven
from encoder_conformance.impls.hf_encoders.places import places_of


class LessOne(ParameterMap):
    """Gains of which theirs are 1 + w: theirs hold the gain less 1, which is exact for those of the suite (P-5)."""

    def of(self, driven: Driven) -> "LessOne":
        own = [name for name in self.every if driven.plus_one(name)]
        self.less_one = {source for name in own for source in self.every[name].sources}
        return self

    def to_own(self, spec: Tensors, layer: dict[str, Any]) -> Tensors:
        return super().to_own({n: v - 1 if n in self.less_one else v for n, v in spec.items()}, layer)


class HuggingFaceEncoders(TorchModule):
    packages = ("torch", "transformers", "numpy")

    def made(self, layer: dict[str, Any]) -> nn.Module:
        driven = Driven(layer["layer"], layer, self.choices["attention"])
        driven.round_epsilon(layer["norm"]["epsilon"])
        self.parameters = LessOne(driven.takes()).of(driven)
        names = [name for name, _ in driven.named_modules()]
        self.post = layer["norm"]["placement"] == "post"
        places = places_of(driven.takes(), names, post=self.post, gated=bool(layer["feed_forward"].get("gated")))
        self.shown, self.entered = places.made, places.entered
        return driven

    def held(self) -> Tensors:
        plus_one = self.parameters.less_one
        return {name: value + 1 if name in plus_one else value for name, value in super().held().items()}

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        allowed = masks.joined(self.heads)
        positions = None if run.positions is None else to_tensor(run.positions[..., 0])
        return self.module(x, None if allowed is None else to_tensor(allowed), positions)

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """What one map makes of several is cut; and where no norm follows, the last sum is the output."""
        seen = super().stages(x, masks, run)
        cut = [(names.split("|"), value) for names, value in seen.items()]
        pieces = [zip(names, np.split(value, len(names), -1), strict=True) for names, value in cut]
        found = dict(piece for several in pieces for piece in several)
        return found if self.post else {**found, "residual2": found["output"]}


if __name__ == "__main__":
    serve(HuggingFaceEncoders())
