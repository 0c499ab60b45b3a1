"""The base of a Python adapter: build a layer from the specification's parameters, then answer runs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.adapter.masks import Masks

Tensors = dict[str, np.ndarray[Any, Any]]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Environment:
    """What the report says about where an implementation ran: package versions, threads, flags."""

    versions: dict[str, str]
    settings: dict[str, str | int | bool] = field(default_factory=dict)


class Adapter(ABC):
    """Drives one implementation. Lives in a worker process of its own; the harness calls it over the wire.

    `x` is [B, S, d_model]; every tensor comes and goes in the dtype that `build` was given. Raise anything: it becomes
    this one answer's error.
    """

    @abstractmethod
    def start(self, device: str, threads: int) -> Environment:
        """Import the framework, set it up for `device` ("cpu" or "cuda") and `threads`."""

    @abstractmethod
    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        """Make the layer (`specs/schema/layer.schema.json`) with these parameters, in `dtype`.

        Gives the parameters back as the live layer now holds them, in the specification's names and orientation:
        the harness compares them bit for bit.
        """

    @abstractmethod
    def output(self, x: Array, masks: Masks) -> Array:
        """The layer's output [B, S, d_model], by the road that a user would take (fused attention and all)."""

    def stages(self, x: Array, masks: Masks) -> Tensors:
        """Every stage of the layer by name, or those that the manifest lists."""
        raise NotImplementedError(f"{type(self).__name__} shows no stages")

    def gradients(self, x: Array, masks: Masks, cotangent: Array) -> Tensors:
        """The gradient of sum(output * cotangent) by `x` (key "x") and by every parameter, in the spec's names."""
        raise NotImplementedError(f"{type(self).__name__} computes no gradients")

    def profile(self, x: Array, masks: Masks, repeats: int) -> Tensors:
        """Stage → the seconds that each of `repeats` passes spent on it, [repeats] float64, after one to warm up.

        Optional. Raise NotImplementedError with the reason where no honest number can be had.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how long a stage takes")

    def run(self, check: str, x: Array, masks: Masks, cotangent: Array | None) -> Tensors:
        if check == "output":
            return {"output": self.output(x, masks)}
        if check == "stages":
            return self.stages(x, masks)
        if check == "gradients" and cotangent is not None:
            return self.gradients(x, masks, cotangent)
        raise ValueError(f"no such check: {check}")
