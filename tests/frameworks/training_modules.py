"""Encoder layers whose dropout is wrong, or right and unusual; each overrides one step of a right one.

`conform check training_modules.py:NAME`.
"""

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_MADE: dict[str, Any] = vars(import_module("backward_modules"))  # by its name, of which PyTorch's compiler asks
Right: Any = _MADE["Right"]
RATE: float = _MADE["RATE"]


class Stated(Right):
    """It says its rate, and drops the two outputs, and the attention weights, with it."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = RATE

    def drop(self, y: Tensor) -> Tensor:
        return self.dropped(y) if self.training else y

    def dropped(self, y: Tensor) -> Tensor:
        return F.dropout(y, self.dropout)


def _of(**methods: Any) -> type[nn.Module]:
    return type("Variant", (Stated,), methods)


def _one_for_both(self: Any, x: Tensor, ignore: Tensor | None) -> Tensor:
    mask = self.drop(torch.ones_like(x))
    x = x + mask * self.attention(self.norm1(x), ignore)
    return x + mask * self.down(self.activation(self.up(self.norm2(x))))


def _in_place(self: Any, y: Tensor) -> Tensor:
    y = y.clone()
    y[torch.rand_like(y) < RATE] = 0
    return y.div_(1 - RATE)


def _of_first_call(self: Any, y: Tensor) -> Tensor:
    if not hasattr(self, "mask"):
        self.mask = F.dropout(torch.ones_like(y), RATE)
    return y * self.mask


def _seeding(seed: Any) -> Any:
    def layer(self: Any, x: Tensor, ignore: Tensor | None) -> Tensor:
        seed()
        return Right.layer(self, x, ignore)

    return layer


def _forked() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        torch.rand(3)


class Own(nn.Module):
    """A dropout of somebody's own. `how`: its function of (y, rate)."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.p, self.how = RATE, how

    def forward(self, y: Tensor) -> Tensor:
        return self.how(y, self.p) if self.training else y


class OwnDropout(Own):
    pass


class InModules(Right):
    """Its dropout is a submodule. `unused`: another, which is never called."""

    def __init__(self, dropout: nn.Module, *, unused: bool = False) -> None:
        super().__init__()
        self.dropout = dropout
        self.second = nn.Dropout(0.3) if unused else nn.Identity()

    def drop(self, y: Tensor) -> Tensor:
        return self.dropout(y)


def drop_path(y: Tensor, rate: float) -> Tensor:
    return y * y.new_empty(len(y), 1, 1).bernoulli_(1 - rate) / (1 - rate)


class DropPath(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop_prob = 0.2

    def forward(self, y: Tensor) -> Tensor:
        if not self.training:
            return y
        return drop_path(y, self.drop_prob)


WRONG: dict[str, tuple[Any, str]] = {
    "never": (_of(dropped=lambda self, y: y), "in training it drops nothing, and it has dropout = 0.1"),
    "never, a submodule": (
        lambda: InModules(OwnDropout(lambda y, p: y)),
        "in training it drops nothing, and it has dropout = 0.1",
    ),
    "rows": (
        _of(dropped=lambda self, y: y * F.dropout(torch.ones_like(y[..., :1]), RATE)),
        "is one draw for all along axis 2 of",
    ),
    "positions": (
        _of(dropped=lambda self, y: y * F.dropout(torch.ones_like(y[:, :1]), RATE)),
        "is one draw for all along axis 1 of",
    ),
    "items": (
        _of(dropped=lambda self, y: y * F.dropout(torch.ones_like(y[:1]), RATE)),
        "is one draw for all along axis 0 of",
    ),
    "channels": (lambda: InModules(nn.Dropout1d(RATE)), "is one draw for all along axis 2 of"),
    "all or nothing": (
        _of(dropped=lambda self, y: y * F.dropout(torch.ones(()), RATE)),
        "is one draw for all along axis",
    ),
    "unscaled": (
        _of(dropped=lambda self, y: y * (torch.rand_like(y) >= RATE)),
        "keeps is multiplied by 1, on average by 0.9: it has to be divided by 1 − p",
    ),
    "unscaled, a submodule": (
        lambda: InModules(OwnDropout(lambda y, p: y * torch.bernoulli(torch.full_like(y, 1 - p)))),
        "keeps is multiplied by 1, on average by 0.9: it has to be divided by 1 − p",
    ),
    "scaled by another rate": (
        _of(dropped=lambda self, y: y * (torch.rand_like(y) >= RATE) / 0.8),
        "on average by 0.9: it has to be divided by 1 − p",
    ),
    "keeps what it should drop": (
        _of(dropped=lambda self, y: F.dropout(y, 1 - RATE)),
        "of what it is given, and its rate is 0.1",
    ),
    "one mask for both": (_of(layer=_one_for_both), "are drawn together (z = "),
    "the mask of the first call": (_of(dropped=_of_first_call), "drops the same in each call"),
}
"""What is wrong → a module, and what is said of its dropout."""
RIGHT: dict[str, Any] = {
    "plain": Stated,
    "in modules": lambda: InModules(nn.Dropout(RATE)),
    "inline": _of(dropped=lambda self, y: y * (torch.rand_like(y) >= RATE) / (1 - RATE)),
    "where": _of(dropped=lambda self, y: torch.where(torch.rand(y.shape) < RATE, 0.0, y / (1 - RATE))),
    "filled": _of(
        dropped=lambda self, y: (y / (1 - RATE)).masked_fill(torch.empty_like(y).bernoulli_(RATE).bool(), 0.0)
    ),
    "in place": _of(dropped=_in_place),
    "native": _of(dropped=lambda self, y: torch.native_dropout(y, RATE, True)[0]),
    "own generator": lambda: _MADE["OwnGenerator"](seeded=True),
    "stochastic depth": lambda: InModules(DropPath()),
    "stochastic depth, a function": _of(dropped=lambda self, y: drop_path(y, RATE)),
    "no dropout": lambda: InModules(nn.Dropout(0.0)),
    "PyTorch's own": lambda: nn.TransformerEncoderLayer(_MADE["D"], 2, 24, batch_first=True),
    "PyTorch's own, none": lambda: nn.TransformerEncoderLayer(_MADE["D"], 2, 24, batch_first=True, dropout=0.0),
    "named so": type("LayerWithDropout", (Stated,), {"p": RATE}),
    "generator forked": _of(layer=_seeding(_forked)),
}
SETS: dict[str, tuple[Any, str]] = {
    "torch.manual_seed": (lambda: torch.manual_seed(0), "PyTorch's"),
    "torch.seed": (lambda: torch.seed(), "PyTorch's"),
    "a state": (lambda: torch.set_rng_state(torch.Generator().manual_seed(3).get_state()), "PyTorch's"),
    "numpy.random.seed": (lambda: np.random.seed(0), "NumPy's"),
}
"""What sets a generator → the function, and whose it is."""


def setting(name: str) -> nn.Module:
    return _of(layer=_seeding(SETS[name][0]))()


def never() -> nn.Module:
    return WRONG["never"][0]()


# ------------------------------------------------------------------------------- compiled


def compiled(made: Any, backend: Any = "eager") -> Any:
    return torch.compile(made(), backend=backend)


def compiled_in_place(made: Any) -> nn.Module:
    module: nn.Module = made()
    module.compile(backend="eager")
    return module


def compiled_forward(made: Any) -> nn.Module:
    module: nn.Module = made()
    module.forward = torch.compile(module.forward, backend="eager")
    return module


def _part() -> nn.Module:
    module = InModules(nn.Dropout(RATE))
    module.dropout = torch.compile(module.dropout, backend="eager")
    return module


def _where_compiled(dropped: Any) -> Any:
    """Right as it is, and dropped so where it is compiled."""
    return _of(dropped=lambda self, y: dropped(self, y) if torch.compiler.is_compiling() else F.dropout(y, RATE))


def _seeds(graph: Any, _: Any) -> Any:
    """A backend whose code begins each call with the same numbers."""

    def run(*given: Any) -> Any:
        torch.manual_seed(0)
        return graph(*given)

    return run


def _leaves_out(graph: Any, _: Any) -> Any:
    """A backend that takes dropout for what is to be left out."""
    for node in graph.graph.nodes:
        if node.target is F.dropout:
            node.args, node.kwargs = (node.args[0], 0.0), {}
    graph.recompile()
    return graph


COMPILED_WRONG: dict[str, tuple[Any, str]] = {
    "never": (lambda: compiled(_where_compiled(lambda self, y: y)), "it drops nothing, and it has dropout = 0.1"),
    "positions": (
        lambda: compiled(_where_compiled(lambda self, y: y * F.dropout(torch.ones_like(y[:, :1]), RATE))),
        "in training: dropout (training_modules.py:",
    ),
    "items": (
        lambda: compiled(_where_compiled(lambda self, y: y * F.dropout(torch.ones_like(y[:1]), RATE))),
        "is one draw for all along axis 0 of",
    ),
    "unscaled": (
        lambda: compiled(_where_compiled(lambda self, y: y * (torch.rand_like(y) >= RATE))),
        "keeps is multiplied by 1, on average by 0.9: it has to be divided by 1 − p",
    ),
    "keeps what it should drop": (
        lambda: compiled_in_place(_where_compiled(lambda self, y: F.dropout(y, 1 - RATE))),
        "of what it is given, and its rate is 0.1",
    ),
    "the mask of the first call": (
        lambda: compiled_forward(_where_compiled(_of_first_call)),
        "drops the same in each call",
    ),
    "a backend that seeds": (lambda: compiled(Stated, _seeds), "two calls that follow each other drop the same"),
    "a backend that leaves it out": (lambda: compiled(Stated, _leaves_out), "its output is that in evaluation"),
}
"""What is wrong where it is compiled alone → the compiled module, and what is said of its dropout."""
COMPILED_RIGHT: dict[str, Any] = {
    "plain": lambda: compiled(Stated),
    "by autograd's graph": lambda: compiled(Stated, "aot_eager"),
    "in place": lambda: compiled_in_place(RIGHT["in modules"]),
    "its forward": lambda: compiled_forward(RIGHT["inline"]),
    "where": lambda: compiled(RIGHT["where"]),
    "stochastic depth": lambda: compiled(RIGHT["stochastic depth"]),
    "stochastic depth, a function": lambda: compiled(RIGHT["stochastic depth, a function"]),
    "no dropout": lambda: compiled(RIGHT["no dropout"]),
    "PyTorch's own": lambda: compiled(RIGHT["PyTorch's own"]),
}
COMPILED_UNSEEN: dict[str, Any] = {
    "a part": _part,
    "own generator": lambda: compiled(RIGHT["own generator"]),
}
"""Right, and not one graph."""


def compiled_never() -> Any:
    return COMPILED_WRONG["never"][0]()


def compiled_right() -> Any:
    return COMPILED_RIGHT["plain"]()
