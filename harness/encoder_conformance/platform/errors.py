"""Exceptions that end a command with a message and no traceback: bad input, and a worker without an answer."""

import difflib
import errno
from collections.abc import Iterable


class InputError(Exception):
    """The user's input (a file, a name, an option) cannot be used; the command exits with status 2.

    `problem` is what is wrong, `where` the file and key or the option, `hint` the next step. `check` and
    `assert_conforms` raise it too. Example: `InputError("no such layer", where="--layer", hint="conform list layers")`.
    """

    def __init__(self, problem: str, *, where: str = "", hint: str = "") -> None:
        self.problem, self.where, self.hint = problem, where, hint
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        first = f"{self.where}: {self.problem}" if self.where else self.problem
        return [first, f"  {self.hint}"] if self.hint else [first]


class MachineError(Exception):
    """The machine lacks what any run needs (descriptors, /dev/null, room for temporary files), so that what a worker
    did says nothing of its implementation: the command exits with status 3. The message says what is missing."""


_OF_MACHINE = frozenset(
    {
        *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.ESTALE, errno.EAGAIN),
        *(errno.ENOLCK, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    }
)


def fault_of_machine(error: BaseException) -> str:
    """What the system could not do, in words, where an error is of that kind; "" else."""
    if isinstance(error, MachineError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.errno in _OF_MACHINE:
        return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
    return ""


class Unanswered(Exception):
    """The implementation gave no answer: it raised an exception, ended, or exceeded a time limit."""


def nearest(name: str, known_names: Iterable[str]) -> str:
    """A hint with the names closest to `name`; without a close one, the first few known names."""
    names = sorted(known_names)
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if matches:
        return "did you mean " + " or ".join(matches) + "?"
    return "known: " + (", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none")
