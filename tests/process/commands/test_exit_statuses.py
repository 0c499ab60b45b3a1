"""Every command has its exit statuses in one table, says them in its help, and keeps those that all have."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from encoder_conformance.commands.commands import BAD_INPUT, Commands
from encoder_conformance.commands.exit_statuses import STATUSES
from encoder_conformance.commands.main import cli
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import ROOT


def said_by(*words: str) -> tuple[int, str]:
    """Its status as `main` gives it, and what it printed."""
    ended = CliRunner().invoke(cli, list(words), standalone_mode=False)
    if isinstance(ended.exception, InputError):
        return BAD_INPUT, ended.output
    refused = ended.exception.exit_code if isinstance(ended.exception, click.ClickException) else ended.exit_code
    return refused or ended.return_value or 0, ended.output


def test_every_command_has_its_statuses() -> None:
    assert isinstance(cli, Commands)
    assert set(cli.list_commands(None)) == set(STATUSES)  # type: ignore[arg-type]  # it needs no context


@pytest.mark.parametrize("command", STATUSES)
def test_a_command_says_its_statuses_and_refuses_what_it_does_not_know(command: str) -> None:
    status, text = said_by(command, "--help")
    assert (status, STATUSES[command].line) == (0, STATUSES[command].line)
    assert re.sub(r"\s+", " ", STATUSES[command].line) in re.sub(r"\s+", " ", text)
    assert said_by(command, "--no-such-option")[0] == 2


MISSING = {
    "explain": ("--out", "no/such"),
    "report": ("no/such", "--to", "site"),
    "reproduce": ("--impl", "no_such", "--out", "no/such"),
    "compare": ("no/such", "nor/this"),
    "merge": ("no/such", "--to", "merged"),
    "summarize": ("no/such", "--junit", "junit.xml"),
    "run": ("--impl", "no/such"),
    "versions": ("no_such",),
    "new": ("Not-A-Name", "--framework", "pytorch"),
    "smoke": ("no/such",),
    "check": ("no_such.py:Layer",),
    "diff": ("no_such.py:Layer", "nor_this.py:Layer"),
    "validate": ("no_such.onnx",),
    "ask": ("--layer", "no-such"),
    "judge": ("no_such.safetensors",),
    "export": ("no_such", "--layer", "pre-gelu", "--to", "model.onnx"),
    "trace": ("--impl", "no_such"),
    "parameters": ("--impl", "no_such"),
    "memory": ("--layer", "no-such"),
    "profile": ("--impl", "no_such"),
    "list": ("no_such",),
}


@pytest.mark.parametrize("command", MISSING)
def test_what_is_not_there_is_bad_input(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said_by(command, *MISSING[command])[0] == 2


LONG = "a" * 300
TOO_LONG = {
    "explain": ("--out", LONG),
    "report": (LONG, "--to", "site"),
    "compare": (LONG, "another"),
    "merge": (LONG, "--to", "merged"),
    "summarize": (LONG, "--junit", "junit.xml"),
    "run": ("--impl", f"./{LONG}"),
    "new": (LONG, "--framework", "numpy"),
    "smoke": (LONG,),
    "ask": ("--layer", "post-relu", "--to", LONG),
    "trace": ("--layer", LONG),
}


@pytest.mark.parametrize("command", TOO_LONG)
def test_a_name_that_no_file_can_have_is_bad_input(conform: Callable, command: str) -> None:
    ended = conform(command, *TOO_LONG[command])
    assert (ended.status, ended.stderr.startswith("conform: ")) == (2, True), ended.stderr
    assert "File name too long" in ended.stderr or "no implementation" in ended.stderr


@pytest.mark.release
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", STATUSES)
def test_an_interrupt_of_any_command_gives_three(command: str, number: signal.Signals, tmp_path: Path) -> None:
    """While its module is imported, by which every command begins."""
    script = (
        "import os, sys\n"
        "class Sender:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {Commands.module_of(command)!r}: os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Sender())\n"
        "from encoder_conformance.commands.program import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", script, command, *MISSING[command]]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, "conform: interrupted; nothing had begun\n")


DROPPED = """
import os, signal, threading
import click
from encoder_conformance.commands.main import main

def end_the_parent():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # Python looks for signals between two steps
        pass

@click.command()
def forks():
    os.register_at_fork(after_in_parent=end_the_parent)
    if os.fork() == 0:
        os._exit(0)
    threading.Event().wait(30)

main(forks)
"""


def test_an_interrupt_that_python_drops_is_raised_once_more() -> None:
    """What runs at a fork drops exceptions, and every program that is started may be such a fork."""
    ended = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, "\nconform: interrupted\n")


def test_the_page_has_every_command() -> None:
    page = ROOT / "docs" / "exit-statuses.md"
    if page.is_file():  # a wheel has no docs/
        assert set(re.findall(r"^\| `conform (\w+)`", page.read_text(), re.MULTILINE)) == set(STATUSES)
