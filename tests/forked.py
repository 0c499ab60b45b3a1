"""`conform` in a process of its own, forked from one that has imported it: seven hundred of them need no start each.

What the command does from `main` on is as ever; tests of the program on disk, of Ctrl-C and of pipes start that.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from types import MappingProxyType
from unittest.mock import Mock, patch

CONTEXT = multiprocessing.get_context("forkserver")
_COMMANDS = [
    f"encoder_conformance.commands.{name}"
    for name in (
        *("main", "run.command", "run.suite", "smoke.command", "validate.command"),
        *("inspect.trace_command", "new.command", "explain", "list", "reproduce"),
        *("compare", "merge", "summarize", "report", "tensors.judge", "tensors.ask", "diff.command", "check.command"),
    )
]
CONTEXT.set_forkserver_preload([*_COMMANDS, "warm"])


@cache
def _server() -> None:
    """Starts what is forked from."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parent))))
    with patch.dict(os.environ, {"PYTHONPATH": path}):
        forkserver.ensure_running()


def conform(
    words: list[str],
    cwd: Path,
    out: Path,
    err: Path,
    seconds: float,
    faults: Mapping[str, Exception | None] = MappingProxyType({}),
) -> int:
    """Its status. What it prints goes to `out` and `err`. Raises TimeoutError, and ends it, after `seconds`.

    `faults`: `module:name` or `module:Class.name` → what calling it raises; None: it gives nothing.
    """
    _server()
    process = CONTEXT.Process(target=_command, args=(words, cwd, dict(os.environ), out, err, dict(faults)))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"conform {' '.join(words)} took more than {seconds} s")
    return process.exitcode


def _command(
    words: list[str],
    cwd: Path,
    environment: dict[str, str],
    out: Path,
    err: Path,
    faults: Mapping[str, Exception | None],
) -> None:
    from encoder_conformance.commands.main import main

    for place, fault in faults.items():
        module, _, name = place.partition(":")
        *within, name = name.split(".")
        owner = reduce(getattr, within, import_module(f"encoder_conformance.{module}"))
        setattr(owner, name, Mock(return_value=[], side_effect=fault))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((Path(os.devnull), out, err)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["conform", *words]
    main()
