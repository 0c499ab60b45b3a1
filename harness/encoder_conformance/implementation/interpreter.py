"""Finds the command that starts each implementation: a Python that has its modules, or another language's program."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from encoder_conformance.implementation.lookup import is_there
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.interrupts import ends_with_parent
from encoder_conformance.platform.paths import PACKAGE, ROOT, shown

LAUNCH = PACKAGE / "adapter" / "launch.py"
LOOKUP = PACKAGE / "implementation" / "lookup.py"
ADAPTER_NEEDS = ("numpy", "safetensors")


@dataclass(frozen=True)
class Ready:
    """An implementation that can be started, with its command line.

    `program`: the first word of it where the user has named that, or this harness has chosen it. None: it is a word of
    the manifest's, by which nothing is executed outside of a worker, nor shown inside a sandbox.
    """

    implementation: Implementation
    folder: Path
    command: tuple[str, ...]
    program: str | None = None

    @property
    def interpreter(self) -> str | None:
        """The Python that starts it; None in another language."""
        return self.program if self.implementation.command[0] == "python" else None


@dataclass(frozen=True)
class Missing:
    """An implementation that cannot be started here, with the reason and a hint."""

    implementation: Implementation
    reason: str
    hint: str


def resolve(implementation: Implementation, folder: Path, named: dict[str, str]) -> Ready | Missing:
    """Find a command that starts the implementation.

    A Python adapter gets the interpreter that `named` maps its name to (--python NAME=PATH). By default it gets this
    interpreter, that of its tox environment in this project's own folder, or that of the virtual environment that is
    active (conform may have one of its own, by pipx or uvx); no other program is executed. One in
    another language gets the program that is named, or the one of its manifest. Raises InputError if a named
    interpreter does not run or the manifest names a missing adapter.
    """
    program, *arguments = implementation.command
    name = implementation.folder_name
    if program != "python":
        return _other_language(implementation, folder, named.get(name))
    modules = (*implementation.requires, *ADAPTER_NEEDS)
    if name in named:
        interpreter, by = named[name], f" by {named[name]}"
        absent = _absent_modules(interpreter, modules)
        if absent is None:
            raise InputError(f"{interpreter!r} does not run", where="--python", hint=f"give {name}=PATH of a Python")
    else:
        interpreter, by = sys.executable, ""
        absent = [module for module in modules if not is_there(module)]
        for other in filter(None, (_of_tox(name), _of_active_environment()) if absent else ()):
            if _absent_modules(other, modules) == []:
                interpreter, absent = other, []
                break
    if absent:
        hint = f"pip install '{implementation.install}', or activate the virtual environment that has it, or --python "
        return Missing(implementation, f"{', '.join(absent)} not importable{by}", f"{hint}{name}=PATH of its Python")
    return _python(implementation, folder, interpreter, arguments)


def _other_language(implementation: Implementation, folder: Path, named: str | None) -> Ready | Missing:
    install = implementation.install.replace("{folder}", shown(folder))
    program, *arguments = implementation.command
    if named is not None:
        if (found := shutil.which(named)) is None:
            hint = f"give {implementation.folder_name}=PATH of a {program}"
            raise InputError(f"{named!r} does not run", where="--python", hint=hint)
        program = named = str(Path(found).absolute())
    if shutil.which(program) is None and not (folder / program).is_file():
        return Missing(implementation, f"its command {program!r} is not found", f"install {program}, then: {install}")
    absent = [path for path in implementation.requires if not (folder / path).exists()]
    if absent:
        return Missing(implementation, f"{', '.join(absent)} not in {shown(folder)}", install)
    return Ready(implementation, folder, (program, *arguments), named)


def _python(implementation: Implementation, folder: Path, interpreter: str, arguments: list[str]) -> Ready:
    name = arguments[0] if arguments else ""
    if not (folder / name).is_file():
        where = f"{shown(folder / 'impl.yaml')}: key command"
        raise InputError(f"names the adapter {name!r}, which is not there", where=where)
    return Ready(implementation, folder, (interpreter, str(LAUNCH), *arguments), interpreter)


def _of_tox(name: str) -> str | None:
    """The interpreter of a tox environment of this checkout; None if there is none, or no checkout."""
    interpreter = ROOT / ".tox" / name / "bin" / "python"
    is_checkout = (ROOT / "tox.ini").is_file() and (ROOT / "harness" / PACKAGE.name).resolve() == PACKAGE
    return str(interpreter) if is_checkout and interpreter.is_file() else None


def places_of(interpreter: str) -> tuple[str, ...]:
    """An interpreter's own path, and after it the folders and files that it needs; () if it does not run at all."""
    return tuple((_ask(interpreter, "--places") or "").splitlines())


def _of_active_environment() -> str | None:
    """The interpreter of the virtual environment that is active; None if it is this one's, or there is none."""
    folder = Path(os.environ.get("VIRTUAL_ENV") or sys.prefix)
    interpreter = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return str(interpreter) if interpreter.is_file() and folder.resolve() != Path(sys.prefix).resolve() else None


@cache
def _absent_modules(interpreter: str, modules: tuple[str, ...]) -> list[str] | None:
    """The modules that another interpreter cannot find; None if it does not run at all."""
    found = _ask(interpreter, *modules)
    return None if found is None else found.split()


def packages_of(interpreter: str) -> str | None:
    """Every distribution that another interpreter has, with its version; None if it does not run at all."""
    return _ask(interpreter, "--installed")


def _ask(interpreter: str, *words: str) -> str | None:
    """The output of `lookup.py` under an interpreter; None if it does not run at all."""
    try:
        process = subprocess.run(
            [interpreter, str(LOOKUP), *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env=passed_on(os.environ),
            stdin=subprocess.DEVNULL,
            preexec_fn=ends_with_parent(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR",
        "XDG_CACHE_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "SYSTEMROOT",
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
    }
)  # fmt: skip
_PREFIXES = (
    "LC_", "CONFORM_", "PYTHON", "NODE_", "MALLOC_",
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "VECLIB_", "BLIS_", "NUMEXPR_",
    "TORCH_", "PYTORCH_", "ATEN_", "ONEDNN_", "DNNL_",
    "TF_", "KERAS_", "JAX_", "XLA_", "PJRT_", "ONNX", "ORT_", "OPENVINO_", "OV_", "MLX_",
    "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "HIP_", "ROCR_",
)  # fmt: skip
"""Variables of the system, of languages, of threads and memory, of frameworks, of devices."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|(^|_)KEY(_|$|S$)", re.IGNORECASE)


def passed_on(variables: Mapping[str, str], named: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that a worker gets: what programs and frameworks read, and what a manifest has `named`.

    A name that speaks of a secret, such as NODE_AUTH_TOKEN, is passed on only if it is named.
    """
    return {
        name: value
        for name, value in variables.items()
        if name in named or ((name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name))
    }
