"""`conform`: the group, and how each kind of ending becomes an exit status.

0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 the harness failed or was cut off.
"""

import os
import sys
import traceback

import click

import encoder_conformance
from encoder_conformance.cli.commands import Commands
from encoder_conformance.errors import InputError, Unanswered

NOT_AS_EXPECTED, BAD_INPUT, INCOMPLETE = 1, 2, 3


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(encoder_conformance.__version__, prog_name="conform")
def cli() -> None:
    """Does this Transformer encoder layer do what it should, and if not, why not?

    \b
    conform run                              judge every implementation whose framework is here, in a minute
    conform run --impl pytorch --level required
    conform new my_backend --framework jax   a new implementation's folder, working but for its blanks
    conform smoke ./my_backend               a checklist for a new adapter, in seconds
    conform explain                          the first failure of that run, in full
    conform export onnx_pytorch --layer pre-gelu --to model.onnx
    conform validate model.onnx              an ONNX file that somebody else made
    conform trace                            every stage's shape, from the live module
    conform parameters                       every parameter by name, total and trainable
    conform memory                           what a forward pass holds, and the longest sequence that fits
    conform profile                          which stage takes how long
    """


def main() -> None:
    sys.exit(_status())


def _status() -> int:
    try:
        status = cli.main(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort as abort:
        return _interrupted(abort.__cause__ or abort)  # click's word for what was raised
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        click.echo("conform: " + "\n".join(error.lines()), err=True)
        return BAD_INPUT
    except Unanswered as failure:
        click.echo(f"conform: {failure}", err=True)
        return NOT_AS_EXPECTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; say no more
        return 0
    except Exception:
        traceback.print_exc()
        click.echo("conform: the harness itself failed; this is a bug, and no verdict", err=True)
        return INCOMPLETE


def _interrupted(interrupt: BaseException) -> int:
    """A command that leaves something behind says in a note what, or what not."""
    click.echo("; ".join(["conform: interrupted", *getattr(interrupt, "__notes__", [])]), err=True)
    return INCOMPLETE


if __name__ == "__main__":
    main()
