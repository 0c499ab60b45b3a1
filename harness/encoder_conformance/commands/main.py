"""`conform`: the command group, and the exit status of each kind of exception."""

import contextlib
import errno
import os
import re
import shutil
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

import encoder_conformance
from encoder_conformance.commands.commands import BAD_INPUT, INCOMPLETE, NOT_AS_EXPECTED, Commands
from encoder_conformance.platform.clean import broken, line
from encoder_conformance.platform.errors import InputError, Unanswered, fault_of_machine
from encoder_conformance.platform.files import UnwritableError
from encoder_conformance.platform.interrupts import INTERRUPTS
from encoder_conformance.platform.memory import collect_no_more, collect_rarely
from encoder_conformance.platform.processors import blas_threads
from encoder_conformance.platform.screen import open_standard_streams


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(encoder_conformance.__version__, prog_name="conform")
@click.pass_context
def cli(context: click.Context) -> int | None:
    """Does this Transformer encoder layer do what it should? If not, why not?

    \b
    A module, without an adapter:
      conform check model.py:encoder            what is it, and is it right?
      conform check model.py:encoder --layer hf:bert
      conform diff old.py:Layer new.py:Layer    two, with the same parameters
    \b
    An ONNX file:
      conform export onnx_pytorch --layer pre-gelu --to model.onnx
      conform validate model.onnx --against model.py:encoder
    \b
    Implementations, in every case:
      conform run                               the matrix, in a minute
      conform explain                           the first failure, in full
      conform report conform-report/latest --to site
      conform versions keras_mha --last 6       which release changed what
      conform new my_backend --framework jax    a folder with blanks to fill in
      conform smoke ./my_backend                a checklist for it
    """

    if context.invoked_subcommand is None:
        click.echo(_FIRST, err=True)
        return BAD_INPUT
    return None


_FIRST = """Does this Transformer encoder layer do what it should? If not, why not?

  conform check model.py:Block     test a module
  conform validate model.onnx      test an ONNX file
  conform run                      test the implementations that are installed

conform --help has the other commands, conform COMMAND --help each one's options."""
_RENAME = "rename the file, or the folder"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tabs and line breaks, and those that turn the direction of writing."""
_MOMENT = 0.01
"""Seconds, in which Python is out of what drops exceptions; if it is not, it waits once more."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main(command: click.Command = cli) -> None:
    """Run a command, and end with the exit status that its end has (docs/reading-a-report.md)."""
    collect_rarely()
    status = _run(command)
    for number in {*INTERRUPTS, signal.SIGALRM}:  # what there was to keep is kept, and the status is known
        signal.signal(number, signal.SIG_IGN)
    collect_no_more()
    sys.exit(status)


def _run(command: click.Command) -> int:
    arrived = _interrupt_by(*INTERRUPTS)
    os.environ.update(blas_threads(1) | os.environ)  # before NumPy: several wait for each other in small products
    try:
        open_standard_streams()
        _require_text()
        status = command.main(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt) as interrupt:
        return _report_interrupt(interrupt.__cause__ or interrupt)  # click wraps the exception that was raised
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        _say("\n".join(error.lines()))
        return BAD_INPUT
    except Unanswered as failure:
        _say(str(failure))
        return NOT_AS_EXPECTED
    except UnwritableError as error:
        _say(f"{error.filename}: cannot be written: {error.strerror}")
        return INCOMPLETE
    except Exception as error:
        if arrived:  # in the middle of something that made another exception of it
            return _report_interrupt(error)
        return _report_failure(error)


def _say(text: str) -> None:
    """On standard error; on a terminal its lines are broken between words."""
    said = f"conform: {text}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        said = "\n".join(broken(each, width) for each in said.splitlines())
    click.echo(said, err=True)


def _report_failure(error: Exception) -> int:
    """Say what an exception that no command expects is of, and give its exit status."""
    if isinstance(error, OSError) and error.errno in _FULL:
        _write_no_more()
        _say(f"{error.strerror}: {error.filename or 'standard output'}")
        return INCOMPLETE
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # whatever looks whether it is there
        _say(f"{line(str(error.filename), 100)}: {error.strerror}")
        return BAD_INPUT
    if missing := fault_of_machine(error):
        _say(f"{missing}; no verdict is of what failed here")
        return INCOMPLETE
    traceback.print_exception(error)
    _say("the harness itself failed; this is a bug, and no verdict")
    return INCOMPLETE


def _require_text() -> None:
    """Raises InputError for an argument, or a working directory, that no report can hold, or that no terminal should
    get: a file's name may be any bytes, and JSON is Unicode."""
    named = {f"argument {number}": word for number, word in enumerate(sys.argv[1:], 1)}
    with contextlib.suppress(OSError):  # it was deleted
        named["the working directory"] = str(Path.cwd())
    for where, text in named.items():
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise InputError(f"is no UTF-8: {line(text)}", where=where, hint=_RENAME)
        if _OBEYED.search(text):
            raise InputError(f"has a character that a terminal obeys: {line(text)}", where=where, hint=_RENAME)


def _interrupt_by(*numbers: signal.Signals) -> list[int]:
    """Let these signals do what Ctrl-C does. One that is ignored, as under nohup, stays so. Returns those that arrived,
    as they do."""
    arrived: list[int] = []

    def arrive(which: int, __: FrameType | None) -> None:
        arrived.append(which)
        for number in numbers:  # a terminal that closes sends several, and one is enough
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_IGN)
        interrupt = KeyboardInterrupt()
        if which == signal.SIGXCPU:
            interrupt.add_note("the processor time that a process has here is used up (ulimit -t)")
        _raise_where_it_counts(interrupt)

    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, arrive)
    return arrived


def _raise_where_it_counts(interrupt: KeyboardInterrupt) -> NoReturn:
    """Raise it, and once more a moment later where Python drops it: in what runs at a fork, or in a finalizer."""

    def arrive_again(_: int, __: FrameType | None) -> None:
        raise interrupt

    def was_dropped(dropped: "sys.UnraisableHookArgs") -> None:  # of no module at run time
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            signal.signal(signal.SIGALRM, arrive_again)
            signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        else:
            sys.__unraisablehook__(dropped)

    sys.unraisablehook = was_dropped
    raise interrupt


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_interrupt(interrupt: BaseException) -> int:
    """Print the interrupt with the exception's notes, in which a command says what it wrote."""
    _say("; ".join(["interrupted", *getattr(interrupt, "__notes__", [])]))
    return INCOMPLETE


if __name__ == "__main__":
    main()
