"""A fault of ours while answers are kept for a diagnosis is said, and is no status 0: of a module and of a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

MODULES = Path(__file__).with_name("bare_modules.py")
FAULTS = {"diagnosis.observations:as_observed": ValueError("there is no rule for its gradient")}
SAID = "conform itself failed in this diagnosis, which changes no verdict: ValueError: there is no rule"


@pytest.mark.release
def test_check_says_it(conform: Callable) -> None:
    ended = conform("check", f"{MODULES}:Fused", "--jobs", "1", "--out", "report", faults=FAULTS)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert SAID in ended.stdout


@pytest.mark.release
def test_validate_says_it(conform: Callable, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    assert conform("export", "onnx_pytorch", "--layer", "pre-gelu", "--to", model).status == 0
    ended = conform("validate", model, "--jobs", "1", "--out", "report", faults=FAULTS)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert SAID in ended.stdout


def test_a_module_that_hangs_or_ends_its_process_is_said_in_a_line(conform: Callable, tmp_path: Path) -> None:
    """Nothing of it can be judged: status 2, with the module's own last words."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    hangs = conform("check", "hostile.py:Hangs", "--timeout", "4s")
    assert hangs.status == 2
    assert "hostile.py:Hangs: it could not be looked into after 3.6 s" in hangs.stderr
    assert "signal.pause()" in hangs.stderr
    mine = conform("check", "hostile.py:Own", "--memory", "4GiB")
    assert mine.status == 2
    assert "hostile.py:Own: Mine: out of luck" in mine.stderr
    assert "hostile.py:18, in forward: raise Mine(" in mine.stderr
    exits = conform("check", "hostile.py:Exits")
    assert exits.status == 2
    assert "it ends its own process, by SystemExit: 4" in exits.stderr
    assert "hostile.py:27, in forward: sys.exit(4)" in exits.stderr


def test_a_file_that_ends_or_hangs_at_import_is_said_with_its_own_line(conform: Callable, tmp_path: Path) -> None:
    """A parser of command lines ends the process in its own file, which nobody can mend."""
    (tmp_path / "parses.py").write_text(PARSES)
    parses = conform("check", "parses.py:args")
    assert parses.status == 2
    assert "parses.py:4, in <module>: args = parser.parse_args()" in parses.stderr
    assert "argparse.py" not in parses.stderr
    assert "put that under `if __name__ == '__main__':`" in parses.stderr
    (tmp_path / "waits.py").write_text("import signal\nsignal.pause()\n")
    waits = conform("check", "waits.py:Layer", "--timeout", "4s")
    assert waits.status == 2
    assert "does not end after 3.6 s" in waits.stderr
    assert "waits.py:2, in <module>: signal.pause()" in waits.stderr
    assert "--timeout gives it longer" in waits.stderr


PARSES = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--width", required=True)
args = parser.parse_args()
"""

HOSTILE = """
import signal
import sys
from torch import nn


class Hangs(nn.Module):
    def forward(self, x):
        signal.pause()


class Mine(BaseException):
    pass


class Own(nn.Module):
    def forward(self, x):
        raise Mine("out of luck")


class Exits(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        sys.exit(4)
"""


def test_what_does_not_end_is_told_with_the_line_in_which_it_stands(conform: Callable, tmp_path: Path) -> None:
    """From outside nobody sees the line: the worker tells it before it is ended, and is asked once."""
    (tmp_path / "turns.py").write_text(TURNS)
    made = conform("check", "turns.py:Made", "--timeout", "8s")
    assert made.status == 2
    assert "turns.py:Made: its file, or what makes it, does not end after 7.2 s" in made.stderr
    assert ", in turn: " in made.stderr
    called = conform("check", "turns.py:Called", "--timeout", "8s")
    assert called.status == 2
    assert "turns.py:Called: it could not be looked into after 7.2 s" in called.stderr
    assert "in forward: turn()" in called.stderr
    assert "--timeout gives it longer" in called.stderr


TURNS = """from torch import nn


def turn():
    at = 0
    while True:
        try:
            at = 1 - at
        except Exception:
            pass


class Made(nn.Linear):
    def __init__(self):
        super().__init__(64, 64)
        turn()


class Called(nn.Linear):
    def __init__(self):
        super().__init__(64, 64)

    def forward(self, x):
        turn()
"""


def test_flex_attention_is_judged_by_its_definition(conform: Callable, tmp_path: Path) -> None:
    """The compiler takes 20 s for each shape, and what it makes on the CPU has no gradients."""
    (tmp_path / "flex.py").write_text(FLEX)
    for name, status in (("eager", 0), ("compiled", 0), ("shifted", 2)):
        ended = conform("check", f"flex.py:{name}")
        assert ended.status == status, ended.stdout
        assert "it calls FlexAttention, of which PyTorch's own definition was asked" in " ".join(ended.stdout.split())
    ended = conform("check", "flex.py:eager", "--also", "compile")
    assert ended.status == 2
    assert "compile was not judged: it calls FlexAttention" in ended.stdout


FLEX = """import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.qkv, self.out, self.attend = nn.Linear(64, 192), nn.Linear(64, 64), attend
        self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.norm2(x)).relu())


def eager():
    return Block(flex_attention)


def compiled():
    return Block(torch.compile(flex_attention))


def shifted():
    return Block(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (j == i)))
"""
