"""An implementation that needs no framework: the fakes inherit from it and each lie in one way."""

from typing import Any

import numpy as np

from harness.adapter import Adapter, Environment, Tensors, serve
from harness.oracle.arithmetic import Arithmetic
from harness.oracle.encoder import Given, encoder
from harness.oracle.tape import Node, Tape
from harness.spec.layer import Layer


class Honest(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        return Environment({"numpy": np.__version__}, {"threads": threads})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.parameters, self.dtype = Layer.model_validate(layer, strict=False), parameters, dtype
        return parameters

    def output(self, x: Any, masks: Any) -> Any:
        return self.as_given(self._forward(self.batch_first(x), masks)[3]["output"].value)

    def weights(self, x: Any, masks: Any) -> Tensors:
        seen = self.stages(x, masks)
        return {name: seen[name] for name in ("attention_weights", "output")}

    def stages(self, x: Any, masks: Any) -> Tensors:
        return {name: node.value for name, node in self._forward(x, masks)[3].items()}

    def gradients(self, x: Any, masks: Any, cotangent: Any) -> Tensors:
        tape, by_x, parameters, stages = self._forward(self.batch_first(x), masks)
        wanted = parameters if by_x is None else {"x": by_x, **parameters}
        found = tape.gradients(stages["output"], self.batch_first(cotangent), wanted)
        return found if by_x is None else {**found, "x": self.as_given(found["x"])}

    def _forward(self, x: Any, masks: Any) -> tuple[Tape, Node | None, dict[str, Node], dict[str, Node]]:
        tape = Tape(Arithmetic(self.dtype))
        valid = masks.valid()
        if (
            valid is not None and x.ndim == 3
        ):  # in an item with a query that has no key, padding may be a part of what it gives
            needed = valid | ~masks.joined(self.layer.attention.num_heads).any(-1).all((1, 2))[:, None]
            x = np.where(needed[:, :, None], x, x.dtype.type(0))
        parameters = {name: tape.leaf(value) for name, value in self.parameters.items()}
        heads = self.layer.attention.num_heads
        masked = masks.joined(heads), masks.added(heads)
        by_x, stages, _ = encoder(tape, self.layer, Given(x, self.parameters, *masked), parameters)
        return tape, by_x, parameters, stages


if __name__ == "__main__":
    serve(Honest())
