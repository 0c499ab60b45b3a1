"""Drives the PyTorch encoder with deviations planted in it, always by the written-out path."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/plants, from where `launch.py` does not start

import torch
from planting import Planting, planted_by_environment
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from encoder_conformance import Environment, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.adapter import PyTorch
from planted_pytorch.stack import planted_encoder


class PlantedPyTorch(PyTorch):
    def __init__(self) -> None:
        self.plant(planted_by_environment())

    def plant(self, ids: list[str]) -> None:
        """Plant these in place of what is planted now. `build` comes after it."""
        self.planting = Planting(ids)

    def start(self, device: str, threads: int) -> Environment:
        environment = super().start(device, threads)
        environment.settings["planted"] = ",".join(self.planting.ids)
        return environment

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        super().build(self.planting.layer(layer), self.planting.parameters(parameters), dtype)
        return parameters

    def forward(
        self, x: Tensor, masks: Masks, run: RunRequest, tap: Tap[Tensor] = untapped, memory: Tensor | None = None
    ) -> Tensor:
        if run.checkpoint and torch.is_grad_enabled():
            return checkpoint(self.forward, x, masks, replace(run, checkpoint=False), tap, use_reentrant=False)
        mask = self.planting.mask(masks, x.size(1))
        given = self.tensor(mask), self.tensor(masks.added(self.heads), self.dtype)
        return planted_encoder(self.encoder, self.planting.ways, x, *given, tap)


if __name__ == "__main__":
    serve(PlantedPyTorch())
