"""An implementation that needs no framework: the fakes inherit from it and each lie in one way."""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from encoder_conformance import Adapter, Environment, Fresh, Tensors, serve
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import encoder
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.tape import Node, Pullback, Tape
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer


class _Quick(Arithmetic):
    """The C library's error function: SciPy's takes longer to import than all that a test asks takes to compute."""

    def erf(self, x: Any) -> Any:
        return np.asarray(_ERF(x), np.float64).astype(self.dtype)


_ERF = np.frompyfunc(math.erf, 1, 1)


class Honest(Adapter):
    equations: Mapping[str, Equation] = {}
    """Stages that a fake computes by another equation."""

    def start(self, device: str, threads: int) -> Environment:
        return Environment({"numpy": np.__version__}, {"threads": threads})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.parameters, self.dtype = Layer.model_validate(layer, strict=False), parameters, dtype
        return parameters

    def initialise(self, seed: int) -> Fresh:
        draw = np.random.default_rng(seed)
        shapes = {name: self.parameters[name].shape for name in sorted(self.parameters)}  # safetensors has no order
        made = {name: self.initial(draw, name, shape).astype(self.dtype) for name, shape in shapes.items()}
        return Fresh(made, tuple(made))

    def initial(self, draw: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
        if not name.endswith("weight"):
            return np.full(shape, name.endswith("gain"))
        bound = (6 / sum(shape)) ** 0.5
        return draw.uniform(-bound, bound, shape)

    def dropped(self, placement: str, value: Any, draw: np.random.Generator) -> Any:
        """What is left of a stage, in training."""
        rate = getattr(self.layer.dropout, placement)
        return value * (draw.random(value.shape) >= rate) / (1 - rate)

    def slope(self, placement: str, ones: Any, draw: np.random.Generator) -> Any:
        """What the gradient of such a stage is multiplied by."""
        return self.dropped(placement, ones, draw)

    def output(self, x: Any, masks: Any, run: Any) -> Any:
        return run.as_given(self._forward(run.batch_first(x), masks, run)[3]["output"].value)

    def stages(self, x: Any, masks: Any, run: Any) -> Tensors:
        return {name: node.value for name, node in self._forward(x, masks, run)[3].items()}

    def gradients(self, x: Any, masks: Any, run: Any, cotangent: Any) -> Tensors:
        tape, inputs, parameters, stages = self._forward(run.batch_first(x), masks, run)
        found = tape.gradients(stages["output"], run.batch_first(cotangent), {**inputs, **parameters})
        return {**found, "x": run.as_given(found["x"])} if "x" in inputs else found

    def _forward(self, x: Any, masks: Any, run: Any) -> tuple[Tape, dict[str, Node], dict[str, Node], dict[str, Node]]:
        heads = self.layer.attention.num_heads
        mask, added = masks.joined(heads), masks.added(heads)
        if masks.padding_id is not None:
            keys = (x != masks.padding_id)[:, None, None]
            mask = keys if mask is None else mask & keys
        self._check_fit(x, mask, run.memory)
        tape = Tape(_Quick(self.dtype))
        valid = masks.valid()
        if valid is not None and x.ndim == 3 and run.memory is None:
            # of an item with a query that has no key, padding may be a part
            needed = valid | ~masks.joined(self.layer.attention.num_heads).any(-1).all((1, 2))[:, None]
            x = np.where(needed[:, :, None], x, x.dtype.type(0))
        parameters = {name: tape.leaf(value) for name, value in self.parameters.items()}
        draw, placements = np.random.default_rng(run.seed), set(self.layer.dropout.rates())

        attended: list[Any] = []

        def onward(name: str, stage: Node) -> Node:
            name = name.rpartition(".")[2]  # of a stack, of any layer
            if name == "context" and attended:
                tape.nodes[-1] = replace(stage, pullback=_attended(*attended.pop(), stage.operands[1].value))
                return tape.nodes[-1]
            if run.mode == "eval" or name not in placements:
                return stage
            again = deepcopy(draw)  # of whatever is made of the value, the slope is what is made of ones

            def drop(_: Arithmetic, value: Any) -> tuple[Any, Any]:
                left, slope = self.dropped(name, value, draw), self.slope(name, np.ones_like(value), again)
                attended.extend([(value, slope)] if name == "attention_weights" else [])
                return left.astype(self.dtype), lambda g: (g * slope,)

            return tape.apply(drop, stage)

        given = LayerInputs(x, self.parameters, mask, added, memory=run.memory, equations=self.equations)
        inputs, stages, _ = encoder(tape, self.layer, given, parameters, onward)
        return tape, inputs, parameters, stages

    def _check_fit(self, x: Any, mask: Any, memory: Any) -> None:
        """NumPy broadcasts whatever it can."""
        if self.layer.embedding is not None:
            return
        if x.dtype != self.dtype:
            raise TypeError(f"x is {x.dtype}, and the layer is {self.dtype}")
        B, S, D = x.shape
        if self.layer.d_model != D:
            raise ValueError(f"x has {D} features, and d_model is {self.layer.d_model}")
        keys = S if memory is None else memory.shape[1]
        due = (B, self.layer.attention.num_heads, S, keys)
        if mask is not None and np.broadcast_shapes(mask.shape, due) != due:
            raise ValueError(f"the mask is {mask.shape}, and the scores are {due}")


def _attended(weights: Any, slope: Any, value: Any) -> Pullback:
    """The way back of weights [B, H, S, T] that were dropped, and of the value [B, H, T, d] that they weigh."""

    def pullback(g: Any) -> tuple[Any, Any]:
        by_weights = g @ value.swapaxes(-1, -2) * slope
        inner = (weights * by_weights).sum(-1, keepdims=True)
        return weights * (by_weights - inner), (weights * slope).swapaxes(-1, -2) @ g

    return pullback


if __name__ == "__main__":
    serve(Honest())
