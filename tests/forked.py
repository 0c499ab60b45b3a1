"""`conform` in a process of its own, forked from one that has imported it: seven hundred of them need no start each.

What the command does from `main` on is as ever; tests of the program on disk, of Ctrl-C and of pipes start that.
"""

import multiprocessing
import os
import sys
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from unittest.mock import patch

CONTEXT = multiprocessing.get_context("forkserver")
_COMMANDS = [
    f"encoder_conformance.commands.{name}"
    for name in (
        *("main", "run.command", "run.suite", "smoke.command", "validate.command"),
        *("inspect.trace_command", "new.command", "explain", "list", "reproduce"),
        *("compare", "merge", "summarize", "report"),
    )
]
CONTEXT.set_forkserver_preload([*_COMMANDS, "warm"])


@cache
def _server() -> None:
    """Starts what is forked from."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parent))))
    with patch.dict(os.environ, {"PYTHONPATH": path}):
        forkserver.ensure_running()


def conform(words: list[str], cwd: Path, out: Path, err: Path, seconds: float, *, diagnosed: bool = True) -> int:
    """Its status. What it prints goes to `out` and `err`. Raises TimeoutError, and ends it, after `seconds`.

    `diagnosed`: whether failures are diagnosed, which takes longer than all else in most runs.
    """
    _server()
    process = CONTEXT.Process(target=_command, args=(words, cwd, dict(os.environ), out, err, diagnosed))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"conform {' '.join(words)} took more than {seconds} s")
    return process.exitcode


def _command(words: list[str], cwd: Path, environment: dict[str, str], out: Path, err: Path, diagnosed: bool) -> None:
    from encoder_conformance.commands.main import main
    from encoder_conformance.diagnosis.observations import Observations

    if not diagnosed:
        Observations.diagnoses = lambda *_, **__: []
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((Path(os.devnull), out, err)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["conform", *words]
    main()
