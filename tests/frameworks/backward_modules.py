"""A small encoder layer that is right, and ways back that are wrong, or right and unusual: each overrides one step.

`conform check backward_modules.py:NAME`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

D, H, HIDDEN, RATE = 16, 2, 24, 0.1


class Right(nn.Module):
    """Pre-norm, by GELU; a padding mask is true where a position is to be ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = H
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def drop(self, y: Tensor) -> Tensor:
        return F.dropout(y, RATE, self.training)

    def attention(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (H, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * (D // H) ** -0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def activation(self, y: Tensor) -> Tensor:
        return F.gelu(y)

    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), ignore))
        return x + self.drop(self.down(self.activation(self.up(self.norm2(x)))))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, padding_mask)


def _step(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """A step of one operand, which its way back is told of."""

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return backward(g, *ctx.saved_tensors)

    return Step.apply


def _in_a_row(g: Tensor) -> Tensor:
    """The numbers as they lie in memory, from the first on."""
    store = torch.empty(0, dtype=g.dtype).set_(g.untyped_storage())
    return store[(g.storage_offset() + torch.arange(g.numel())) % store.numel()].view(g.shape)


def _into(g: Tensor, _: Tensor) -> Tensor:
    found = g.clone()
    g.mul_(2)
    return found


LAST: dict[str, Any] = {
    "reads memory": _step(torch.clone, lambda g, _: _in_a_row(g)),
    "views": _step(torch.clone, lambda g, _: g.view(-1).view(g.shape)),
    "writes the gradient": _step(torch.clone, _into),
}
"""Name → the last step of a layer, which is the identity and wrong on its way back."""


class Last(Right):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return LAST[self.name](self.layer(x, padding_mask))


class Inside(Right):
    """Behind the last map, and before the last sum: what comes to it lies as what comes to the output."""

    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x), ignore))
        return x + self.drop(LAST["reads memory"](self.down(self.activation(self.up(self.norm2(x))))))


class WritesX(Right):
    """In place where no gradient is taken, as fast paths do."""

    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        found = super().layer(x, ignore)
        if not torch.is_grad_enabled():
            x.copy_(found)
        return found


class WritesXByData(Right):
    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        found = super().layer(x, ignore)
        x.data.mul_(0.5)
        return found


class WritesXOnTheWayBack(Right):
    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().layer(_step(torch.clone, lambda g, saved: g + 0 * saved.zero_())(x), ignore)


class WritesMask(Right):
    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            return self.layer(x, None)
        keep = padding_mask.logical_not_()
        return self.layer(x, ~keep)


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, module: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.module, ctx.x, ctx.parameters, ctx.state = module, x.detach(), parameters, torch.get_rng_state()
        return module.layer(x, None)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        with torch.enable_grad(), ctx.module.as_before(ctx.state):
            x = ctx.x.requires_grad_()
            y = ctx.module.layer(x, None)
        found = torch.autograd.grad(y, (x, *ctx.parameters), g, allow_unused=True)
        return None, *found


class Again(Right):
    """A checkpoint of its own. `how` it computes again: with the "draws" of before, with "nothing", or in "eval"."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is not None or not torch.is_grad_enabled():
            return self.layer(x, padding_mask)
        return _Again.apply(self, x, *self.parameters())

    def as_before(self, state: Tensor) -> Any:
        if self.how == "draws":
            torch.set_rng_state(state)
        return _in_eval(self) if self.how == "eval" else nullcontext()


@contextmanager
def _in_eval(module: nn.Module) -> Iterator[None]:
    was = module.training
    module.eval()
    yield
    module.train(was)


class Checkpointed(Right):
    """PyTorch's own. `chosen`: its options."""

    def __init__(self, **chosen: bool) -> None:
        super().__init__()
        self.chosen = chosen

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        found: Tensor = checkpoint(self.layer, x, padding_mask, **self.chosen)
        return found


class CheckpointedWhereItMay(Right):
    """Reentrant, and right: not where x needs no gradient."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.layer(x, padding_mask)
        found: Tensor = checkpoint(self.layer, x, padding_mask, use_reentrant=True)
        return found


class FirstPartLost(Right):
    """Attention takes no part in training where x needs no gradient."""

    def attention(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        found = super().attention(x, ignore)
        return found if x.requires_grad and self._of_x else found.detach()

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        self._of_x = x.requires_grad
        return self.layer(x, padding_mask)


class OwnGenerator(Right):
    """`seeded`: by a generator of its own, which no seed reaches and a copy has too; else by the machine's."""

    def __init__(self, *, seeded: bool) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3) if seeded else None

    def drop(self, y: Tensor) -> Tensor:
        if not self.training:
            return y
        generator = self.generator
        if generator is None:
            generator = torch.Generator()
            generator.seed()
        return y * (torch.rand(y.shape, generator=generator) >= RATE) / (1 - RATE)


class OwnGeneratorAgain(OwnGenerator, Again):
    """Draws from the machine where it computes again."""

    def __init__(self) -> None:
        Again.__init__(self, "draws")
        self.generator = None


class WithoutDropout(Right):
    def drop(self, y: Tensor) -> Tensor:
        return y


class Relu(Right):
    def activation(self, y: Tensor) -> Tensor:
        return F.relu(y)
