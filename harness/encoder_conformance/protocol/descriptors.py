"""An adapter's ends of the wire: descriptors of its own, which nothing that is printed and no child process touches."""

import os
import sys
from io import FileIO

VARIABLE = "CONFORM_WIRE"
"""The environment variable that names the descriptors of requests and answers, as `3,4`."""


def claim_standard_streams() -> None:
    """Point standard input to nothing and standard output to standard error, where the wire has its own descriptors.

    The harness lets standard input and output be the wire too, for adapters that can open no other descriptor. After
    this call nothing that the adapter, its framework or a child process prints reaches the wire, and no program that
    they start holds it open.
    """
    if VARIABLE not in os.environ:
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for descriptor in _descriptors():
        os.set_inheritable(descriptor, False)


def open_wire() -> tuple[FileIO, FileIO]:
    """The requests and the answers, unbuffered: what the adapter has not read yet stays where the harness can see it.

    Without the variable they are standard input and output, and what is printed goes to standard error.
    """
    if VARIABLE in os.environ:
        requests, answers = _descriptors()
    else:
        requests, answers = os.dup(0), os.dup(1)
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    # Never closed by us: the stream ends with the process, so that its status and last words are there to be read,
    # and not seconds before, while an interpreter with a framework in it comes down.
    return FileIO(requests, "rb", closefd=False), FileIO(answers, "wb", closefd=False)


def _descriptors() -> tuple[int, int]:
    requests, answers = map(int, os.environ[VARIABLE].split(","))
    return requests, answers
