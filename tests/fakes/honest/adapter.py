"""An implementation that needs no framework: the fakes inherit from it and each lie in one way."""

from typing import Any

import numpy as np

from harness.adapter import Adapter, Environment, Fresh, Tensors, serve
from harness.oracle.arithmetic import Arithmetic
from harness.oracle.encoder import encoder_layer
from harness.oracle.tape import Node, Tape
from harness.spec.layer import Layer


class Honest(Adapter):
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

    def output(self, x: Any, masks: Any) -> Any:
        return self.as_given(self._forward(self.batch_first(x), masks)[3]["output"].value)

    def weights(self, x: Any, masks: Any) -> Tensors:
        seen = self.stages(x, masks)
        return {name: seen[name] for name in ("attention_weights", "output")}

    def stages(self, x: Any, masks: Any) -> Tensors:
        return {name: node.value for name, node in self._forward(x, masks)[3].items()}

    def gradients(self, x: Any, masks: Any, cotangent: Any) -> Tensors:
        tape, by_x, parameters, stages = self._forward(self.batch_first(x), masks)
        found = tape.gradients(stages["output"], self.batch_first(cotangent), {"x": by_x, **parameters})
        return {**found, "x": self.as_given(found["x"])}

    def _forward(self, x: Any, masks: Any) -> tuple[Tape, Node, dict[str, Node], dict[str, Node]]:
        tape = Tape(Arithmetic(self.dtype))
        valid = masks.valid()
        by_x = tape.leaf(x if valid is None else np.where(valid[:, :, None], x, x.dtype.type(0)))
        parameters = {name: tape.leaf(value) for name, value in self.parameters.items()}
        heads = self.layer.attention.num_heads
        masked = masks.joined(heads), masks.added(heads)
        draw, placements = np.random.default_rng(self.seed), set(self.layer.dropout.rates())

        def onward(name: str, stage: Node) -> Node:
            if self.mode == "eval" or name not in placements:
                return stage
            return Node(self.dropped(name, stage.value, draw).astype(self.dtype))

        return tape, by_x, parameters, encoder_layer(tape, self.layer, parameters, by_x, *masked, onward=onward)


if __name__ == "__main__":
    serve(Honest())
