"""An export that an earlier command kept is that of a module that makes the very same calls, and of no other."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks import kept_exports, torch_live
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK

D = 16
SHAPE = (2, 5, D)
SETTINGS = SimpleNamespace(scale=0.5)


class Block(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor] = torch.relu, more: float = 0.0, hidden: int = 32) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(D), nn.Linear(D, hidden), nn.Linear(hidden, D)
        self.act = act
        self.register_buffer("more", torch.full((D,), more))

    def forward(self, x: Tensor) -> Tensor:
        return x + SETTINGS.scale * self.down(self.act(self.up(self.norm(x)))) + self.more


class Either(Block):
    """Two that make the same calls, and give another of what these make."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.gives_first = first

    def forward(self, x: Tensor) -> Tensor:
        sums = [x + self.down(self.act(self.up(self.norm(x)))), x + self.more]
        return sums[0 if self.gives_first else 1]


class Elsewhere(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + SETTINGS.scale * self.down(self.act(self.up(self.norm(x)))) + self.more


class Renamed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.first = self._modules.pop("norm")

    @property
    def norm(self) -> Any:
        return self.first


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module], tuple[bytes, bool]]:
    """What a module is exported to, and whether the exporter was asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[None] = []
    exported = torch_live.exported

    def counting(*given: Any, **choices: Any) -> Any:
        asked.append(None)
        return exported(*given, **choices)

    monkeypatch.setattr(torch_live, "exported", counting)

    def of(module: nn.Module) -> tuple[bytes, bool]:
        asked.clear()
        torch.manual_seed(0)
        for value in module.parameters():
            nn.init.normal_(value)
        return FRAMEWORK.live(module).export(SHAPE).SerializeToString(), bool(asked)

    return of


def test_one_module_is_exported_once(exports: Callable[[nn.Module], tuple[bytes, bool]]) -> None:
    first, anew = exports(Block())
    second, again = exports(Block())
    assert (anew, again) == (True, False)
    assert first == second


_SELDOM = [pytest.param(each, marks=pytest.mark.release) for each in ("function", "buffer", "size", "name", "exporter")]


@pytest.mark.parametrize("other", ["line", "constant", *_SELDOM])
def test_another_module_is_exported_itself(
    other: str, exports: Callable[[nn.Module], tuple[bytes, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports(Block())
    if other == "constant":
        monkeypatch.setattr(SETTINGS, "scale", 0.25)
    if other == "exporter":
        monkeypatch.setattr(kept_exports, "made_by", lambda packages: ["another"])
    made = {
        "function": lambda: Block(torch.tanh),
        "buffer": lambda: Block(more=1.0),
        "size": lambda: Block(hidden=24),
        "line": Elsewhere,
        "name": Renamed,
    }.get(other, Block)
    assert exports(made())[1]


def test_what_gives_another_tensor_is_exported_itself(exports: Callable[[nn.Module], tuple[bytes, bool]]) -> None:
    first, other = exports(Either(True)), exports(Either(False))
    assert (first[1], other[1]) == (True, True)
    assert first[0] != other[0]


def test_what_cannot_be_seen_is_exported_each_time(exports: Callable[[nn.Module], tuple[bytes, bool]]) -> None:
    """It looks whether its calls are seen, and refuses to be."""

    class Shy(Block):
        def forward(self, x: Tensor) -> Tensor:
            if (
                torch.utils._python_dispatch._get_current_dispatch_mode() is not None
                and not torch.compiler.is_exporting()
            ):
                raise RuntimeError("not under a mode")
            return super().forward(x)

    assert [exports(Shy())[1], exports(Shy())[1]] == [True, True]
