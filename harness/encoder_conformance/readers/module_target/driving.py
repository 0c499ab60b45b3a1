"""Drives a module by what is known of it: how it is called, what its masks mean, which parameter is which."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from encoder_conformance import Adapter, Array, Masks, RunRequest, Tensors
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.locating import Place
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.stages import axes_of


class ModuleAdapter(Adapter):
    """Its subclasses know a module, and make copies of it in `loaded`. `places`: where its stages are seen."""

    semantics: InputSemantics
    always_causal: bool
    places: Mapping[str, Place]
    ungiven: frozenset[str] = frozenset()
    """Parameters whose gradients cannot be told apart, or are kept by nothing."""

    def loaded(self, parameters: Tensors, dtype: str) -> tuple[LiveModule, ElementMap]:
        """A copy of the module in this dtype with these parameters, and which of its own elements they are."""
        raise NotImplementedError

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        """What the copy holds: in the format of the request, though it may hold some in another, as it was given."""
        self.heads = layer["attention"]["num_heads"]
        self.module, self.elements = self.loaded(parameters, dtype)
        held = self.elements.held(self.module.flat())
        return {name: held.get(name, value).astype(value.dtype, copy=False) for name, value in parameters.items()}

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        """The output, as x is: [B, S, D] or in the layout of the run."""
        answer = self.module.run(self.feeds(run.batch_first(x), masks))["output"]
        return run.as_given(np.ascontiguousarray(self.semantics.batch_first(answer)))

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """The stages of x [B, S, D], by name."""
        shown = frozenset(place.module for place in self.places.values())
        seen, answer = self.module.watched(self.feeds(x, masks), shown)
        B, S = x.shape[:2]
        stages = {}
        for stage, place in self.places.items():
            values = seen[place.key]
            by_heads = len(axes_of(stage).split()) == 4
            shape = values.shape if by_heads else (B, S, values.size // (B * S))
            stages[stage] = place.of(values, shape)
        stages["output"] = np.ascontiguousarray(self.semantics.batch_first(answer))
        return stages

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        """The gradients by x [B, S, D] and by each parameter, for a gradient of the output in the shape of x."""
        seed = np.ascontiguousarray(self.semantics.laid_out(run.batch_first(cotangent)))
        try:
            by_x, own = self.module.backward(self.feeds(run.batch_first(x), masks), seed)
        except RuntimeError as error:  # of PyTorch, as where a part of a map's result is written over
            raise ExecutionError(last_frames(error)) from None
        found = {name: value for name, value in self.elements.taken(own).items() if name not in self.ungiven}
        return {"x": run.as_given(np.ascontiguousarray(self.semantics.batch_first(by_x))), **found}

    def feeds(self, x: Array, masks: Masks) -> Tensors:
        """The module's arguments for x [B, S, D]."""
        return module_feeds(self.semantics, x, masks, self.heads, always_causal=self.always_causal)

    def refusal(self, operation: str, error: Exception) -> str | None:
        return None if isinstance(error, ExecutionError) else super().refusal(operation, error)
