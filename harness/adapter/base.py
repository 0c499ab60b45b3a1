"""The base of a Python adapter: build a layer from the specification's parameters, then answer runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from encoder_conformance.adapter.masks import Masks
from encoder_conformance.adapter.parameters import ParameterMap

Tensors = dict[str, np.ndarray[Any, Any]]
Array = np.ndarray[Any, Any]
REFUSALS: dict[str, dict[type[Exception], str]] = {
    "build": {ValueError: "configuration"},
    "run": {TypeError: "dtype", ValueError: "shape"},
}
"""Operation → exception → the category of what it refuses."""


@dataclass(frozen=True)
class Environment:
    """What the report says about where an implementation ran: package versions, threads, flags."""

    versions: dict[str, str]
    settings: dict[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Fresh:
    """A layer as it is made, before anything is loaded: in the specification's names, and those that are trained."""

    parameters: Tensors
    trainable: tuple[str, ...]


class Adapter(ABC):
    """Drives one implementation. Lives in a worker process of its own; the harness calls it over the wire.

    `x` below is token ids, int64 [B, S], where the layer has an embedding; then there is no gradient by x. Every other
    tensor comes and goes in the dtype that `build` was given; one that does not is handed on as it is, for the layer
    to refuse (X-6). Raise anything: it becomes this one answer's error, and a refusal where `refusal` says so.
    """

    map: ParameterMap | None = None
    """The map that `build` takes its parameters through, if there is one: what is said of a parameter names its own."""
    choices: Mapping[str, str] = MappingProxyType({})
    """A value for each of the manifest's choices, there before `start`."""
    layout: str = "batch_first"
    """How this run's x comes, and output, the gradient by x and the cotangent go: "batch_first" [B, S, d_model],
    "sequence_first" [S, B, d_model], "unbatched" [S, d_model]. The manifest lists those that an adapter takes."""
    mode: str = "eval"
    """"eval" or "train", where dropout is at work."""
    seed: int = 0
    """What this run's dropout is drawn from, in mode "train"."""
    memory: Array | None = None
    """[B, T, d_model], what this run's keys and values are made of, where the layer is attention alone (E-17)."""
    checkpoint: bool = False
    """Whether this run's gradients are to be computed with activations made again rather than kept."""

    @abstractmethod
    def start(self, device: str, threads: int) -> Environment:
        """Import the framework, set it up for `device` ("cpu" or "cuda") and `threads`."""

    @abstractmethod
    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        """Make the layer (`specs/schema/layer.schema.json`) with these parameters, in `dtype`.

        Gives the parameters back as the live layer now holds them, in the specification's names and orientation:
        the harness compares them bit for bit.
        """

    def initialise(self, seed: int) -> Fresh:
        """Make the layer of the last `build` anew, with the implementation's own initialisation, drawn from `seed`.

        For the check `initialisation`. Another `build` follows before anything is run.
        """
        raise NotImplementedError(f"{type(self).__name__} initialises nothing")

    def read_checkpoint(self, layer: dict[str, Any], like: Tensors, dtype: str, path: Path) -> Tensors:
        """The parameters of `layer` in a file of the implementation's own, under the specification's names, in the
        shapes of `like`.

        Optional. Raises ValueError, KeyError or the framework's own for a file that does not hold this layer's.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no checkpoints")

    def write(self, layer: dict[str, Any], parameters: Tensors, dtype: str, mask: str) -> bytes:
        """The layer as a file to deploy, for `conform export`; `mask` as the message `export` has it (docs/wire.md).

        Optional: the manifest has the capability `export` where it is there.
        """
        raise NotImplementedError(f"{type(self).__name__} writes no files")

    def batch_first(self, x: Array) -> Array:
        """This run's x, or cotangent, as [B, S, d_model], or token ids as [B, S]; nothing is copied."""
        if self.layout == "unbatched":
            return x[None]
        return x.swapaxes(0, 1) if self.layout == "sequence_first" else x

    def as_given(self, y: Array) -> Array:
        """[B, S, d_model], an output or a gradient by x, in this run's layout."""
        if self.layout == "unbatched":
            return np.asarray(y[0])
        return y.swapaxes(0, 1) if self.layout == "sequence_first" else y

    @abstractmethod
    def output(self, x: Array, masks: Masks) -> Array:
        """The layer's output, in the layout of x, by the path that a user would take (fused attention and all)."""

    def weights(self, x: Array, masks: Masks) -> Tensors:
        """`attention_weights` [B, H, S, S] and `output`: two of the stages.

        To be written anew where a framework has a path of its own for a user who asks for the weights.
        """
        seen = self.stages(x, masks)
        return {name: seen[name] for name in ("attention_weights", "output")}

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

    def other(self, message: dict[str, Any]) -> tuple[dict[str, Any], Tensors]:
        """Answer a request that not every adapter knows, such as `inspect`: what the reply says, and its tensors."""
        raise ValueError(f"no such operation: {message.get('op')}")

    def refusal(self, operation: str, error: Exception) -> str | None:
        """The category, "configuration", "shape" or "dtype", of what an exception of `build` or `run` refuses; None
        where it refuses nothing, and is a fault (clause X-1).

        This is Python's own usage. Override it for the exceptions of a framework, and hand on the others.
        """
        known = REFUSALS.get(operation, {})
        return next((category for kind, category in known.items() if isinstance(error, kind)), None)

    def run(self, check: str, x: Array, masks: Masks, cotangent: Array | None) -> Tensors:
        if check == "output":
            return {"output": self.output(x, masks)}
        if check == "weights":
            return self.weights(x, masks)
        if check == "stages":
            return self.stages(x, masks)
        if check == "gradients" and cotangent is not None:
            return self.gradients(x, masks, cotangent)
        raise NotImplementedError(f"no such check: {check}")  # no ValueError: nothing is wrong with x or the masks
