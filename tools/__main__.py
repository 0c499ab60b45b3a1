"""`python -m tools`: the maintainers' commands, with the exit statuses of `conform`."""

import click

from encoder_conformance.commands.main import main
from tools.core.command import core
from tools.deviations.command import deviations
from tools.golden.command import golden
from tools.pages.command import pages


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def tools() -> None:
    """Make what the project keeps: goldens, the core, the generated pages."""


for command in (golden, core, deviations, pages):
    tools.add_command(command)

if __name__ == "__main__":
    main(tools)
