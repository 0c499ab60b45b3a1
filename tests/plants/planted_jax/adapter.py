"""Drives the JAX encoder with deviations planted in it, operation by operation: nothing to compile for each of them."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/plants, from where `launch.py` does not start

import jax.numpy as jnp
from planting import Planting, planted_by_environment

from encoder_conformance import Array, Environment, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.jax_pure.adapter import JaxPure, flat
from planted_jax.stack import planted_encoder


class PlantedJax(JaxPure):
    def __init__(self) -> None:
        super().__init__()
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

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return self.stages(x, masks, run)["output"]

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        mask = self.planting.mask(masks, x.shape[1])
        bias = masks.added(self.heads)
        given = mask, None if bias is None else bias.astype(self.dtype)
        operands = jnp.asarray(x), *(None if one is None else jnp.asarray(one) for one in given)
        return flat(planted_encoder(self.encoder, self.planting.ways, self.params, *operands))


if __name__ == "__main__":
    serve(PlantedJax())
