"""Faults by generator (striking.py): whatever is struck, nothing hangs, nobody is accused, nothing false is said, what
was there before stands for nothing new, and no worker is left.

These commands need no framework; tests/frameworks/test_generated_faults.py has the others.
"""

import runpy
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import filling
import numpy as np
import pytest
import striking
import struck
from struck import Told

HERE = Path(__file__).resolve()
HONEST = HERE.parents[2] / "fakes" / "honest"
ANSWER = HERE.parents[3] / "docs" / "tensors" / "answer.py"
ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
OF_NOTED = ("--impl", "./noted", "--layer", "pre-gelu")
COMMANDS = {
    "run": Told(("run", "--impl", "./noted", *ONE, "--out", "out"), "out/report.json"),
    "smoke": Told(("smoke", "./noted")),
    "explain": Told(("explain", "--out", "old")),
    "list": Told(("list", "impls")),
    "report": Told(("report", "old", "--to", "site")),
    "compare": Told(("compare", "old", "older", "--to", "site")),
    "merge": Told(("merge", "old", "--to", "merged")),
    "summarize": Told(("summarize", "old", "--junit", "junit.xml")),
    "new": Told(("new", "my_backend", "--framework", "pytorch")),
    "ask": Told(("ask", "--layer", "pre-gelu", "--to", "questions.safetensors")),
    "judge": Told(("judge", "answers.safetensors", "--out", "out"), "out/report.json"),
    "diff": Told(
        ("diff", "./noted", "./other", "--layer", "pre-gelu", "--jobs", "1", "--out", "out"),
        "out/diff.json",
        takes_long=True,
    ),
    "reproduce": Told(("reproduce", "--impl", "./wrong", "--out", "failed", "--to", "shown.py")),
    "trace": Told(("trace", *OF_NOTED)),
    "parameters": Told(("parameters", *OF_NOTED)),
    "memory": Told(("memory", *OF_NOTED, "--measure")),
}
ENOUGH = 400

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands are given: two adapters that note their processes, a wrong one, answers, and finished runs."""
    place = tmp_path_factory.mktemp("prepared")
    for name in ("noted", "other"):
        folder = shutil.copytree(HONEST, place / name, ignore=shutil.ignore_patterns("*.log", "__pycache__"))
        (folder / "impl.yaml").write_text(
            (folder / "impl.yaml").read_text().replace("name: honest", f"name: {name}", 1)
        )
        struck.note_processes(folder / "adapter.py")
    printed = place / "printed"
    printed.mkdir()

    def told(*words: str) -> int | None:
        return striking.told([*words], place, printed, None)

    for name in ("old", "older"):
        assert told("run", "--impl", "./noted", *ONE, "--out", name) == 0
    assert told("new", "wrong", "--framework", "numpy") == 0
    filling.fill(place / "wrong", "numpy")
    encoder = place / "wrong" / "encoder.py"
    encoder.write_text(encoder.read_text().replace('layer["norm"]["epsilon"]', "1e-3"))
    assert told("run", "--impl", "./wrong", "--case", "pre-gelu/low-variance", *ONE[2:], "--out", "failed") == 1
    assert told("ask", "--layer", "post-relu", "--dtype", "float32", "--to", "asked.safetensors") == 0
    with chdir(place), np.errstate(all="ignore"):
        runpy.run_path(str(ANSWER))
    shutil.rmtree(printed)
    return place


Plain = Callable[[str], tuple[dict[str, int], set[str]]]


@pytest.fixture(scope="module")
def plain(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """`unstruck` of a command by its name. Once each."""
    known: dict[str, tuple[dict[str, int], set[str]]] = {}

    def of(command: str) -> tuple[dict[str, int], set[str]]:
        if command not in known:
            known[command] = struck.unstruck(prepared, tmp_path_factory.mktemp(command), COMMANDS[command])
        return known[command]

    return of


def test_there_are_enough_of_them(plain: Plain) -> None:
    every = {(command, strike) for command in COMMANDS for strike in COMMANDS[command].strikes(plain(command)[0])}
    print(f"{len(every)} faults")
    assert len(every) >= ENOUGH


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_strikes_a_command_nothing_is_lost_false_or_left(
    command: str, prepared: Path, plain: Plain, tmp_path: Path
) -> None:
    events, made = plain(command)
    struck.faults_of_each(prepared, tmp_path, COMMANDS[command], events, made)
