"""Drives a module by what is known of it: how it is called, what its masks mean, which parameter is which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from encoder_conformance import Adapter, Array, Masks, RunRequest, Tensors
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.locating import Place
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.stages import axes_of


class Map(Protocol):
    """Between the specification's parameters and a module's own."""

    def load(self, module: LiveModule, parameters: Mapping[str, Array]) -> None: ...
    def taken(self, flat: Array) -> dict[str, Array]:
        """The gradients by the specification's parameters, out of those by all own elements [n]."""
        ...

    def held(self, flat: Array) -> dict[str, Array]:
        """The specification's parameters, out of all own elements [n]."""
        ...


@dataclass(frozen=True)
class Driven:
    """A copy of a module in one dtype, with all that it takes to run it. `places`: where its stages are seen."""

    module: LiveModule
    semantics: InputSemantics
    always_causal: bool
    places: Mapping[str, Place]
    map: Map
    tied: frozenset[str] = frozenset()


class ModuleAdapter(Adapter):
    """Its subclasses say how a `Driven` is made, in `driven`."""

    def driven(self, dtype: str) -> Driven:
        raise NotImplementedError

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.heads = layer["attention"]["num_heads"]
        self.built = self.driven(dtype)
        self.built.map.load(self.built.module, parameters)
        held = self.built.map.held(self.built.module.flat())
        return {name: held.get(name, value) for name, value in parameters.items()}

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        """The output, as x is: [B, S, D] or in the layout of the run."""
        answer = self.built.module.run(self.feeds(run.batch_first(x), masks))["output"]
        return run.as_given(np.ascontiguousarray(self.built.semantics.batch_first(answer)))

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """The stages of x [B, S, D], by name."""
        places = self.built.places
        seen, answer = self.built.module.watched(self.feeds(x, masks), {place.module for place in places.values()})
        B, S = x.shape[:2]
        stages = {}
        for stage, place in places.items():
            values = seen[place.module, place.side, place.index]
            by_heads = len(axes_of(stage).split()) == 4
            shape = values.shape if by_heads else (B, S, values.size // (B * S))
            stages[stage] = place.of(values, shape)
        stages["output"] = np.ascontiguousarray(self.built.semantics.batch_first(answer))
        return stages

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        """The gradients by x [B, S, D] and by each parameter, for a gradient of the output in the shape of x."""
        semantics = self.built.semantics
        seed = np.ascontiguousarray(semantics.laid_out(run.batch_first(cotangent)))
        by_x, own = self.built.module.backward(self.feeds(run.batch_first(x), masks), seed)
        found = {name: value for name, value in self.built.map.taken(own).items() if name not in self.built.tied}
        return {"x": run.as_given(np.ascontiguousarray(semantics.batch_first(by_x))), **found}

    def feeds(self, x: Array, masks: Masks) -> Tensors:
        """The module's arguments for x [B, S, D]."""
        built = self.built
        return module_feeds(built.semantics, x, masks, self.heads, always_causal=built.always_causal)

    def refusal(self, operation: str, error: Exception) -> str | None:
        return None if isinstance(error, ExecutionError) else super().refusal(operation, error)
