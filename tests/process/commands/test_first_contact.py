"""What somebody meets who has not read anything: no command, a wrong one, help, completion, and output for programs."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from products import of_a_release

from encoder_conformance.commands.main import cli

COMMANDS = cli.list_commands(click.Context(cli))


def test_without_a_command_it_says_the_three_things_to_do(conform: Callable) -> None:
    ended = conform()
    assert ended.status == 2
    assert [line.split()[1] for line in ended.stderr.splitlines() if line.startswith("  conform ")] == [
        "check", "validate", "run",
    ]  # fmt: skip


@pytest.mark.parametrize(("typed", "meant"), [("chekc", "check"), ("validat", "validate"), ("sumarize", "summarize")])
def test_a_wrong_command_is_answered_with_the_right_one(conform: Callable, typed: str, meant: str) -> None:
    ended = conform(typed)
    assert ended.status == 2
    assert f"did you mean {meant}" in ended.stderr


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("model.pt", "is a pickle", "torch.load('model.pt', weights_only=False)"),
        ("weights.pth:Layer", "is a pickle", "torch.load('weights.pth', weights_only=False)"),
        ("model.pt2", "is an exported program", "torch.export.load('model.pt2').module()"),
        ("model.keras", "is a model of Keras", "keras.models.load_model('model.keras')"),
        ("saved", "is a SavedModel", "the model that it was exported from"),
        ("model.safetensors", "holds weights alone", "the module with these weights"),
        ("model.onnx", "is an ONNX file", "conform validate model.onnx judges it"),
        ("notes.ipynb:block", "is a notebook", "encoder_conformance.check(NAME)"),
    ],
)
def test_a_file_without_source_is_told_how_its_module_is_named(
    conform: Callable, tmp_path: Path, name: str, what: str, hint: str
) -> None:
    file = tmp_path / name.partition(":")[0]
    if name == "saved":
        file = file / "saved_model.pb"
        file.parent.mkdir()
    file.touch()
    ended = conform("check", name)
    assert ended.status == 2
    assert what in ended.stderr
    assert hint in ended.stderr


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_fits_eighty_columns(name: str | None) -> None:
    context = click.Context(cli, info_name="conform", terminal_width=80)
    command: click.Command | None = cli
    if name is not None:
        command = cli.get_command(context, name)
        context = click.Context(command or cli, info_name=name, parent=context, terminal_width=80)
    assert command is not None
    assert max(len(line) for line in command.get_help(context).splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("conform run --impl pyt", "pytorch"),
        of_a_release("conform check model.py:encoder --layer pre-gelu-t", "pre-gelu-tanh"),
        of_a_release("conform run --case pre-gelu/no-m", "pre-gelu/no-mask"),
        of_a_release("conform validate model.onnx --deviation norm-eps-1e-3", "norm-eps-1e-3"),
    ],
)
def test_a_shell_completes_names(conform: Callable, words: str, found: str) -> None:
    """As click's script for Bash asks."""
    variables = {"_CONFORM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    ended = conform(env=os.environ | variables)
    assert ended.status == 0, ended.stderr
    assert f"plain,{found}" in ended.stdout.splitlines()


def test_a_list_in_a_pipe_has_a_line_for_each_item(conform: Callable) -> None:
    rows = [line.split("\t") for line in conform("list", "layers").stdout.splitlines()]
    assert {"pre-gelu", "post-relu"} <= {row[0] for row in rows}
    assert len({len(row) for row in rows}) == 1


def test_a_run_and_its_summary_are_json_and_nothing_else(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    wrong = fake("wrong", "def output(self, x, masks, run):\n    return x")
    few = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
    ended = conform("run", "--impl", wrong, *few, "--out", tmp_path / "run", "--json")
    assert ended.status == 1, ended.stderr
    assert json.loads(ended.stdout) == json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    counted = json.loads(conform("summarize", tmp_path / "run", "--json").stdout)
    assert counted["complete"]
    assert not counted["as_expected"]
    [judged] = counted["implementations"]
    assert judged["name"] == "wrong"
    assert judged["checks"]["conforming"] < judged["checks"]["applicable"]
