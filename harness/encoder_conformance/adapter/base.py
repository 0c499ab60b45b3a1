"""The base class of a Python adapter: it builds a layer from the specification's parameters, then runs it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.parameters import ParameterMap
from encoder_conformance.adapter.request import RunRequest
from encoder_conformance.protocol.frames import Sendable

Tensors = dict[str, Array]
"""Arrays by name: parameters, stages, gradients or times."""
REFUSALS: dict[str, dict[type[Exception], str]] = {
    "build": {ValueError: "configuration"},
    "run": {TypeError: "dtype", ValueError: "shape"},
}
"""Operation → type of exception → category of the refusal (clause X-1)."""


@dataclass(frozen=True)
class Environment:
    """The environment of an implementation, for the report. `Adapter.start` returns it.

    Example: `Environment({"torch": torch.__version__}, {"threads": threads})`.
    """

    versions: dict[str, str]
    """Package → its version."""
    settings: dict[str, str | int | bool] = field(default_factory=dict)
    """Settings that the numbers may depend on, such as threads and flags."""


@dataclass(frozen=True)
class Fresh:
    """A freshly initialised layer, before anything is loaded into it (A-4). `Adapter.initialise` returns it.

    Example: `Fresh(PARAMETERS.to_spec(own), PARAMETERS.spec_names(trained))`.
    """

    parameters: Tensors
    """Every parameter, by the specification's name and in its shape: weights are [in, out]."""
    trainable: tuple[str, ...]
    """The specification's names of the parameters that are trained."""


class Adapter(ABC):
    """Drives one implementation in a worker process of its own. The harness calls it over the wire.

    A subclass has `start`, `build` and `output`, and whatever else the manifest declares. All that one run is told is
    an argument of that run: `x`, its `masks`, and in `run` its layout, mode, seed, checkpointing and memory.

    Shapes: B batch, S sequence, T positions of a memory (S without one), H heads. `x` is [B, S, d_model] in the layout
    of the run, or token ids, int64 [B, S], if its embedding has a vocabulary; then there is no gradient by x.
    Every other tensor has the dtype that `build` was given. A tensor of a wrong dtype or shape is passed on unchanged,
    for the layer to refuse (X-4 to X-6).

    Any exception becomes the error of this one answer; `refusal` decides whether it is a refusal.

    Example:

        class MyBackend(Adapter):
            def start(self, device, threads):
                return Environment({"my_backend": my_backend.__version__})

            def build(self, layer, parameters, dtype):
                self.layer = my_backend.Layer(layer["d_model"], PARAMETERS.to_own(parameters, layer))
                return PARAMETERS.to_spec(self.layer.parameters())

            def output(self, x, masks, run):
                return run.as_given(self.layer(run.batch_first(x), masks.joined()))
    """

    map: ParameterMap | None = None
    """The map that `build` uses, if any. With it, messages call a parameter by its own name too."""
    choices: Mapping[str, str] = MappingProxyType({})
    """A value for each of the manifest's choices, set before `start`."""

    @abstractmethod
    def start(self, device: str, threads: int) -> Environment:
        """Import the framework and set it up for `device` ("cpu" or "cuda") and this number of threads.

        Raises any exception for a device that is not there: nothing is asked of the implementation then.
        """

    @abstractmethod
    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        """Build the layer (`specs/schema/layer.schema.json`) with these parameters, in `dtype`.

        `dtype` is "float64", "float32", "float16" or "bfloat16". Returns the parameters as the live layer holds them,
        in the specification's names and orientation; the harness compares them bit for bit. Raises ValueError for a
        layer that cannot be (X-2, X-3).
        """

    def initialise(self, seed: int) -> Fresh:
        """Make the layer of the last `build` again, with the implementation's own initialisation, drawn from `seed`.

        Optional: for the check `initialisation`. Another `build` follows before the next run.
        """
        raise NotImplementedError(f"{type(self).__name__} initialises nothing")

    def read_checkpoint(self, layer: dict[str, Any], like: Tensors, dtype: str, path: Path) -> Tensors:
        """Read the parameters of `layer` from a file in the implementation's own format.

        Returns them under the specification's names, in the shapes of `like`. Optional: for `conform export
        --checkpoint`. Raises ValueError, KeyError or the framework's own exception for a file of another layer.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no checkpoints")

    def write(self, layer: dict[str, Any], parameters: Tensors, dtype: str, mask: str) -> bytes:
        """The bytes of a file to deploy, for `conform export`. `mask`: "padding" or "full" (docs/wire.md, `export`).

        Optional: the manifest declares it by the capability `export`.
        """
        raise NotImplementedError(f"{type(self).__name__} writes no files")

    @abstractmethod
    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        """The layer's output, [B, S, d_model] in the layout of x, by the code path that a user takes.

        Fused attention is included. Raises ValueError for a shape and TypeError for a dtype that do not fit the layer.
        """

    def weights(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """`attention_weights` [B, H, S, T] and `output`, by default taken from `stages`.

        Override it if the framework has its own way to return the weights.
        """
        stages = self.stages(x, masks, run)
        return {name: stages[name] for name in ("attention_weights", "output")}

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """Every stage of the layer by name (T-1), or those that the manifest lists; x is batch first."""
        raise NotImplementedError(f"{type(self).__name__} shows no stages")

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        """The gradients of sum(output * cotangent); `cotangent` has the shape and the layout of the output.

        Keys: "x" in the layout of x, except for token ids; "memory" [B, T, d_model], if there is one; every parameter
        under the specification's name and in its shape.
        """
        raise NotImplementedError(f"{type(self).__name__} computes no gradients")

    def profile(self, x: Array, masks: Masks, run: RunRequest, repeats: int) -> Tensors:
        """Stage → seconds in each of `repeats` passes, [repeats] float64, after one pass to warm up.

        Optional. Raise NotImplementedError with the reason if no meaningful number can be measured.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how long a stage takes")

    def other(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Sendable]:
        """Answer a request that no other method answers, such as `inspect`: the reply and its tensors."""
        raise ValueError(f"no such operation: {message.get('op')}")

    def refusal(self, operation: str, error: Exception) -> str | None:
        """The category of a refusal by `build` or `run`: "configuration", "shape" or "dtype" (clause X-1).

        None if the exception is a fault. The default follows Python's conventions. Override it for the exceptions of a
        framework, and call this one for the others.
        """
        categories = REFUSALS.get(operation, {})
        return next((category for kind, category in categories.items() if isinstance(error, kind)), None)

    def run_check(self, check: str, x: Array, masks: Masks, run: RunRequest, cotangent: Array | None = None) -> Tensors:
        """Call the method of the check. There is no need to override it."""
        if check == "output":
            return {"output": self.output(x, masks, run)}
        if check == "weights":
            return self.weights(x, masks, run)
        if check == "stages":
            return self.stages(x, masks, run)
        if check == "gradients" and cotangent is not None:
            return self.gradients(x, masks, run, cotangent)
        raise NotImplementedError(f"no such check: {check}")  # not a ValueError, which would refuse x or the masks
