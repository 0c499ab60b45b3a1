"""A worker without network and home, by bubblewrap (bwrap), which needs Linux and user namespaces and no privileges.

The sandbox sees the system's programs and libraries, the interpreter and what it imports from, the harness's code, the
specification without its goldens, the implementations, and the model that is judged with what lies beside it, all
read-only; and an empty /tmp of a gigabyte, which is its home too. It has its own process ids, so that nothing in it can
see or signal a process outside.
"""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready, imported_from
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import IMPLS, PACKAGE, SPECS

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives",
    "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system/cpu",
)  # fmt: skip
_SCRATCH = "/tmp"
_SCRATCH_BYTES = 1 << 30
_HINT = "on Debian: apt install bubblewrap; docs/untrusted.md says what else there is"


def require_sandbox() -> None:
    """Raises InputError where bubblewrap is missing or may not make namespaces."""
    if (program := shutil.which("bwrap")) is None:
        raise InputError("needs bubblewrap, whose command bwrap is not found", where="--isolate", hint=_HINT)
    tried = subprocess.run(
        [program, "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"cannot make a sandbox here: {reason}", where="--isolate", hint=_HINT)


def sandboxed(ready: Ready, environment: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of an implementation inside a sandbox, and its environment there."""
    inside = {**environment, "HOME": _SCRATCH, "TMPDIR": _SCRATCH, "XDG_CACHE_HOME": f"{_SCRATCH}/cache"}
    options = ["--unshare-all", "--die-with-parent", "--dev", "/dev", "--proc", "/proc"]
    options += ["--size", str(_SCRATCH_BYTES), "--tmpfs", _SCRATCH]
    imported = imported_from(ready)
    for path in sorted({str(path) for path in _readable(ready, imported) if path.exists()}):  # parents come first
        options += ["--ro-bind", path, path]
    # Of this harness, and of one that is installed where the implementation's packages are (paths.py).
    for specs in (SPECS, *(place / "encoder_conformance" / "_specs" for place in imported)):
        if (golden := (specs / "golden").resolve()).is_dir():
            options += ["--tmpfs", str(golden)]
    return ("bwrap", *options, "--chdir", str(ready.folder.resolve()), "--", *ready.command), inside


def _readable(ready: Ready, imported: Iterable[Path]) -> Iterator[Path]:
    yield from map(Path, _SYSTEM)
    program = Path(shutil.which(ready.command[0]) or ready.command[0])
    # A virtual environment, and the installation that its interpreter is a link to.
    for interpreter in (program, program.resolve()):
        if interpreter.parent.name == "bin" and str(interpreter.parents[1]) not in ("/", "/usr"):
            yield interpreter.parents[1].absolute()
    yield from (PACKAGE, IMPLS, SPECS, ready.folder.resolve())
    for value in ready.implementation.chosen.values():
        if Path(value).is_absolute() and Path(value).is_file():  # a model, with its external data beside it
            yield Path(value).parent
    for place in imported:  # anywhere, if it is a checkout: but no home as a whole
        if not Path.home().is_relative_to(place.absolute()):
            yield place.absolute()
