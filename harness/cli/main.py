"""`conform`: the command group, and the exit status of each kind of outcome.

0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 the harness failed or was interrupted.
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
    conform run                              judge every implementation whose framework is installed, in a minute
    conform run --impl pytorch --level required
    conform new my_backend --framework jax   a new implementation's folder, complete but for a few blanks
    conform smoke ./my_backend               a checklist for a new adapter, in seconds
    conform explain                          the first failure of that run, in full
    conform export onnx_pytorch --layer pre-gelu --to model.onnx
    conform validate model.onnx              an ONNX file from any source
    conform trace                            every stage's shape, from the live module
    conform parameters                       every parameter by name, total and trainable
    conform memory                           the memory of a forward pass, and the longest sequence that fits
    conform profile                          the time of each stage
    """


def main() -> None:
    sys.exit(_run_command())


def _run_command() -> int:
    try:
        status = cli.main(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort as abort:
        return _report_interrupt(abort.__cause__ or abort)  # click wraps the exception that was raised
    except KeyboardInterrupt as interrupt:
        return _report_interrupt(interrupt)
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe: write no more
        return 0
    except Exception:
        traceback.print_exc()
        click.echo("conform: the harness itself failed; this is a bug, and no verdict", err=True)
        return INCOMPLETE


def _report_interrupt(interrupt: BaseException) -> int:
    """Print the interrupt with the exception's notes, in which a command says what it wrote."""
    click.echo("; ".join(["conform: interrupted", *getattr(interrupt, "__notes__", [])]), err=True)
    return INCOMPLETE


if __name__ == "__main__":
    main()
