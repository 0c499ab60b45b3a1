"""Every command that README and docs/ show has options, implementations, layers and cases that exist."""

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import click
import pytest

from encoder_conformance.commands.main import cli
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.spec.load import load, load_deviations

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "specs" / "README.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
SHOWN = re.compile(r"^(?:    |\$ |    \$ )?(conform [^`\n]+)$|`(conform [^`\n]+)`", re.MULTILINE)
COMMENT = re.compile(r"\s{2,}.*$| +#.*$| \\$")
PLACEHOLDER = re.compile(r"…|[\[\]<>|]|\b[A-Z]{2,}\b|\b[A-Z]\b")
"""A synopsis, such as `conform diff A B`, and no command."""


def shown_commands() -> dict[str, str]:
    """Command → the page that shows it."""
    found: dict[str, str] = {}
    for page in PAGES:
        for match in SHOWN.finditer(page.read_text(encoding="utf-8")):
            command = COMMENT.sub("", match[1] or match[2]).strip()
            if not PLACEHOLDER.search(command):
                found.setdefault(command, page.name)
    return found


COMMANDS = shown_commands()


def parsed(words: list[str]) -> tuple[click.Command, dict[str, object]]:
    """The command, and its options as they are written. Raises what click raises for an option that it lacks."""
    command: click.Command = cli
    context = click.Context(cli, info_name="conform")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"no command {name}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        options, rest, _ = command.make_parser(context).parse_args(args=list(words))
    except click.BadOptionUsage as error:  # `conform run --shard`, in a sentence, names an option without its value
        if words[-1] != error.option_name:
            raise
        return command, {}
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice):
            for each in _values(options, parameter.name or ""):
                parameter.type.convert(each, parameter, context)
    return command, {**options, "rest": rest}


def test_the_pages_show_many_commands_and_every_command_is_shown() -> None:
    assert len(COMMANDS) > 120
    shown = {shlex.split(command)[1] for command in COMMANDS if len(shlex.split(command)) > 1}
    assert not set(cli.list_commands(click.Context(cli))) - shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_shown_command_exists_with_all_that_it_names(command: str) -> None:
    found, options = parsed(shlex.split(command)[1:])
    of_deviations = found.name == "deviations"
    for pattern in _values(options, "cases" if of_deviations else "globs"):
        assert any(fnmatchcase(case, pattern) for case in load().cases), pattern
    for pattern in _values(options, "globs") if of_deviations else ():
        assert any(fnmatchcase(name, pattern) for name in load_deviations()), pattern
    for name in [*_values(options, "impls"), *_values(options, "impl")]:
        if "/" not in name and not name.startswith("my_"):
            find_implementation(name)


def _values(options: dict[str, object], name: str) -> list[str]:
    value = options.get(name)
    return (
        [str(each) for each in value] if isinstance(value, (list, tuple)) else [value] if isinstance(value, str) else []
    )
