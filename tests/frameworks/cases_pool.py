"""Kinds of layers that a random pool of the published ones showed to be refused, or judged, for a reason not theirs."""

from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor


class SummedBeforeTheSkip(Plain):
    """What the network and attention give is added first, and x to that, as in GPT-NeoX."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.ffn(self.norm2(x)) + self.attend(self.norm1(x), ignore) + x


class ShapesLeftOut(PlainPost):
    """What it does not do without has a default, stands behind a mask that has none, and others are handed on."""

    def forward(self, x: Tensor, mask: Tensor, shapes: Any = None, reach: Any = None, **more: object) -> Tensor:
        x = x if reach is None else x + reach
        return self.layer(x, mask) * sum(height * width for height, width in shapes)


class BlocksLeftOut(Plain):
    """The line that fails calls it otherwise than the argument is called."""

    def forward(self, x: Tensor, mask: Tensor | None = None, blocks: Tensor | None = None) -> Tensor:
        return self.within(self.layer(x, mask), blocks)

    def within(self, x: Tensor, grouped: Tensor | None) -> Tensor:
        return torch.gather(grouped, 1, x.argmax(-1, keepdim=True))


class AttendsToAKey(Plain):
    """An argument called `key` that is a sequence, and x again where it is None, as in GroupViT."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        x, other = self.norm1(query), self.norm1(query if key is None else key)
        q, k, v = self.split(self.q(x)), self.split(self.k(other)), self.split(self.v(other))
        x = query + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class PositionsBoundWhereGiven(PlainPost):
    """What it adds to queries and keys is None by default, and it has no way without, as in Table Transformer."""

    def forward(self, x: Tensor, mask: Tensor, object_queries: Tensor | None = None) -> Tensor:
        if object_queries is not None:
            original, x = x, x + object_queries
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(original))
        y = self.norm1(original + self.o(self.core(q, k, v, mask).transpose(1, 2).flatten(2)))
        return self.norm2(y + self.ffn(y))
