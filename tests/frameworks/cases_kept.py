"""What a layer keeps between its calls, and in a cache that it is given."""

from typing import Any

import torch
from cases_plain import Plain
from torch import Tensor, nn


class WritesIntoACache(Plain):
    """Keys and values of what came before stand in front of its own; there is none at first."""

    def forward(self, x: Tensor, layer_cache: dict[str, Tensor]) -> Tensor:
        before = layer_cache.get("x")
        layer_cache["x"] = x if before is None else torch.cat([before, x], 1)
        return self.layer(layer_cache["x"])


class TakesThreeCalls(Plain):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 3:
            raise RuntimeError("the cache is full")
        return self.layer(x)


class WritesInThePlaceOfX(Plain):
    """As a layer of graphs does with its batch."""

    def forward(self, batch: Any) -> Any:
        batch.x = self.layer(batch.x)
        return batch


class CalledByItsMethod(Plain):
    forward = nn.Module.forward

    def encode(self, x: Tensor) -> Tensor:
        return self.layer(x)
