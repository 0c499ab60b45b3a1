"""A second check of a module takes what the first has kept, and says the very same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODULES = """
import torch
from torch import nn

def right():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 2, 32)

class NoResidual(nn.TransformerEncoderLayer):
    def forward(self, src, src_mask=None, src_key_padding_mask=None):
        x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
        return self.norm2(self._ff_block(x))

def wrong():
    torch.manual_seed(0)
    return NoResidual(16, 2, 32)
"""
_WHEN = "seconds"


@pytest.mark.parametrize(
    ("name", "status", "more"),
    [("right", 0, ()), pytest.param("wrong", 1, ("--layer", "post-relu"), marks=pytest.mark.release)],
)
def test_a_second_check_says_the_same(
    name: str, status: int, more: tuple[str, ...], conform: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "modules.py").write_text(MODULES)
    target, kept = f"{tmp_path / 'modules.py'}:{name}", tmp_path / "cache" / "encoder-conformance"

    def checked(out: str) -> tuple[int, Any, list[Path]]:
        ended = conform("check", target, *more, "--out", str(tmp_path / out))
        return ended.status, _timeless(json.loads((tmp_path / out / "check.json").read_text())), sorted(kept.rglob("*"))

    first, second = checked("first"), checked("second")
    assert first[0] == status
    assert {each.parent.name for each in first[2] if each.is_file()} == {"expectations", "exports"}
    assert first == second


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name != _WHEN}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
