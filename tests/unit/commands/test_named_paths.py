"""A path that is given and empty, as of a variable of a shell that is not set, is refused by every command: it would
be the working directory."""

from collections.abc import Iterator

import click
import pytest

from encoder_conformance.commands.commands import Commands
from encoder_conformance.commands.main import cli


def paths() -> Iterator[tuple[str, str]]:
    """Command and option; of an argument ""."""
    assert isinstance(cli, Commands)
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter.type, click.Path):
                yield name, parameter.opts[0] if isinstance(parameter, click.Option) else ""


PATHS = [*paths()]


@pytest.mark.parametrize(("command", "option"), PATHS)
def test_an_empty_path_is_refused(command: str, option: str) -> None:
    with pytest.raises(click.BadParameter, match="is empty: name a file or folder"):
        cli.main([command, *filter(None, [option]), ""], standalone_mode=False)


def test_every_command_that_writes_is_among_them() -> None:
    assert {option for _, option in PATHS} >= {"--out", "--to", "--junit", "--markdown", "--badge", "--fix", ""}
    assert {command for command, option in PATHS if option == "--out"} >= {"run", "check", "diff", "validate", "judge"}
    assert {command for command, option in PATHS if option == "--to"} >= {"merge", "report", "export", "ask"}
