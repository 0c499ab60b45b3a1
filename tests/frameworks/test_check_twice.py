"""A second check of a module takes what the first has kept, and says the very same."""

import json
import re
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
    ("name", "status", "options"),
    [("right", 0, ()), pytest.param("wrong", 1, ("--layer", "post-relu"), marks=pytest.mark.release)],
)
def test_a_second_check_says_the_same(
    name: str, status: int, options: tuple[str, ...], conform: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "modules.py").write_text(MODULES)
    target, kept = f"{tmp_path / 'modules.py'}:{name}", tmp_path / "cache" / "encoder-conformance"

    def checked(*more: str) -> tuple[int, Any, list[Path]]:
        ended = conform("check", target, *options, *more, "--out", str(tmp_path / "out"))
        return (
            ended.status,
            _timeless(json.loads((tmp_path / "out" / "check.json").read_text())),
            sorted(kept.rglob("*")),
        )

    first, second = checked(), checked("--rerun")
    assert first[0] == status
    assert {each.parent.name for each in first[2] if each.is_file()} == {"expectations", "exports", "verdicts"}
    assert first[:2] == second[:2]
    again = checked()
    assert again[1].pop("kept_since")
    assert again[1] == {name: value for name, value in first[1].items() if name != "kept_since"}


@pytest.fixture
def settings(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file elsewhere, from which model.py in the working directory reads its epsilon."""
    settings = tmp_path_factory.mktemp("elsewhere") / "settings.txt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(settings.parent / "cache"))
    settings.write_text("1e-5")
    read = f"float(open({str(settings)!r}).read())"
    (tmp_path / "model.py").write_text(MODULES.replace("2, 32)", f"2, 32, layer_norm_eps={read})"))
    return settings


def test_what_is_as_it_was_is_not_asked_again_and_what_has_changed_is(conform: Callable, settings: Path) -> None:
    def checked(*more: str) -> tuple[int, list[str]]:
        ended = conform("check", "model.py:right", *more)
        return ended.status, ended.stdout.splitlines()[:-1]

    status, first = checked("-v")
    assert status == 0
    again = checked("-v")
    assert again[0] == 0
    assert again[1][:-1] == first
    assert re.fullmatch(
        r"Judged .* UTC; nothing that this rests on has changed since\. --rerun judges anew\.", again[1][-1]
    )
    assert checked()[1][-1] == again[1][-1]  # what is shown of it is no other verdict
    settings.write_text("1e-3")
    assert "ε 0.001" in "".join(checked()[1])


@pytest.mark.release
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("line", ["open('count.txt', 'a').write('1')", "__import__('subprocess').run(['true'])"])
def test_a_module_that_writes_or_asks_another_program_is_asked_each_time(
    line: str, conform: Callable, tmp_path: Path
) -> None:
    model = tmp_path / "model.py"
    model.write_text(f"{model.read_text()}\n{line}\n")
    for _ in range(2):
        assert "nothing that this rests on" not in conform("check", "model.py:right").stdout


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name != _WHEN}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
