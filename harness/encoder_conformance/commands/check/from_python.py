"""`encoder_conformance.check` and `assert_conforms`: a module of the user's own process, judged in other processes.

python -m encoder_conformance.commands.check.from_python FILE
    does the check that the file has the pickled request of; result or problem come to lie beside it
"""

import functools
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from encoder_conformance.commands.check.also import variants_from
from encoder_conformance.commands.check.cell import table_of
from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.commands.check.results import CheckResult
from encoder_conformance.commands.check.show import show_check
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.protocol.handover import LIVE, hand_over
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.level import Level

REQUEST, RESULT, PROBLEM = "request.pickle", "result.json", "problem.json"
_LOG = 4_000
"""The last characters of a process that failed which are shown."""
_WIDTH = 160


class CheckReport:
    """The report of one check. `repr` shows what `conform check -v` prints, and a notebook the verdict as a table.

    `result` has everything, as check.json does (docs/checking.md).
    """

    def __init__(self, result: CheckResult) -> None:
        self.result = result

    @property
    def status(self) -> int:
        """0 it does what it was judged as; 1 it does not; 2 it was not judged."""
        return self.result.status

    @property
    def conforms(self) -> bool:
        """Whether it does what it was judged as: the stated layer, or what was read off it."""
        return self.status == 0

    @property
    def warnings(self) -> list[str]:
        """The unusual choices of the module, over all parts, and what is unusual around them."""
        around = (finding for finding in self.result.of_whole if finding.severity == "warning")
        of_parts = (finding for part in self.result.parts for finding in part.warnings)
        return [finding.message for finding in (*of_parts, *around)]

    @property
    def deviations(self) -> list[str]:
        """The deviations that explain what does not conform, over all parts and formats."""
        found = [each for part in self.result.parts for each in part.diagnoses if each.confidence == "explained"]
        return list(dict.fromkeys(name for each in found for name in each.deviations))

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return table_of(self.result)

    @functools.cached_property
    def _text(self) -> str:
        """Everything, printed once to where nobody looks."""
        screen = Console(file=io.StringIO(), width=_WIDTH, force_terminal=True, color_system=None, markup=False)
        show_check(screen, self.result, verbose=True)
        assert isinstance(screen.file, io.StringIO)
        return screen.file.getvalue().strip()


def check(
    module: object,
    layer: str | Path | None = None,
    *,
    level: Level = "core",
    at: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    deviations: Sequence[str] = (),
    dtypes: Sequence[DtypeName] = (),
    also: Sequence[str] = (),
    jobs: int | None = None,
) -> CheckReport:
    """Judge a module, as `conform check` does; it stays as it is.

    `module`: an instance, a class or function that makes one with `arguments`, or a target as on the command line
    ("package.module:name", "file.py:name", "hf:bert"). `layer`: what it should be, an id of the specification, the path
    of a YAML file, or "hf:bert" for that of a model of transformers; None: what can be read off it. `at`: a part of it,
    as "encoder.layer.0". `deviations`: ids of those that it is known for. `dtypes`: formats to ask it in, as
    "bfloat16"; default: float64 and float32. `also`: forms to judge it in, too, as "compile" (docs/checking.md).
    `jobs`: processes that compute; default: one for each processor.

    An object is pickled into a private temporary folder and loaded in a worker process. Raises InputError if it cannot
    be, or if nothing in it can be judged.
    """
    request = CheckRequest(
        target=module if isinstance(module, str) else _name_of(module),
        at=at,
        level=level,
        dtypes=_known_formats(dtypes),
        declared=declared_from(deviations),
        also=variants_from(also),
        jobs=jobs or os.cpu_count() or 1,
        narrow=True,
        supposing=True,
    ).stating(None if layer is None else str(layer), "`check` judges encoder layers")
    result = _judged_apart(request, module, arguments or {})
    return CheckReport(result.model_copy(update={"target": request.target}))


def assert_conforms(
    module: object,
    layer: str | Path,
    level: Level = "core",
    *,
    at: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    deviations: Sequence[str] = (),
) -> None:
    """Assert that a module does what `layer` says, for a test. Arguments are those of `check`.

    Raises AssertionError with the report, and InputError if nothing can be judged.
    """
    report = check(module, layer, level=level, at=at, arguments=arguments, deviations=deviations)
    if not report.conforms:
        raise AssertionError(f"it does not do what {layer} says\n{report!r}")


def _judged_apart(request: CheckRequest, module: object, arguments: Mapping[str, Any]) -> CheckResult:
    """The result of a process of its own: a notebook or a script is no place to start processes from, or to set signals
    in."""
    with tempfile.TemporaryDirectory(prefix="conform-") as temporary:
        folder = Path(temporary)
        if isinstance(module, str):
            request = replace(request, arguments={name: repr(value) for name, value in arguments.items()})
        else:
            made = functools.partial(_callable(module), **arguments) if arguments else module
            request = replace(request, target=f"{LIVE}{hand_over(made, folder)}")
        return _result_of(request, folder)


def _result_of(request: CheckRequest, folder: Path) -> CheckResult:
    """Judge a request, which is written to a folder that is private to the user, and read the result there."""
    asked, problem, result = (folder / name for name in (REQUEST, PROBLEM, RESULT))
    asked.write_bytes(pickle.dumps(request))
    command = [sys.executable, "-m", "encoder_conformance.commands.check.from_python", str(asked)]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if problem.is_file():
        raise InputError(**json.loads(problem.read_text(encoding="utf-8")))
    if not result.is_file():
        raise RuntimeError(f"the check ended with status {ended.returncode}:\n{ended.stderr[-_LOG:]}")
    return CheckResult.model_validate_json(result.read_text(encoding="utf-8"))


def _known_formats(names: Sequence[str]) -> tuple[DtypeName, ...]:
    for name in names:
        if name not in FORMATS:
            raise InputError(f"no format {name!r}", where="dtypes", hint=f"one of {', '.join(FORMATS)}")
    return tuple(name for name in get_args(DtypeName) if name in names)


def _callable(module: object) -> Any:
    if not isinstance(module, type) and not hasattr(module, "__code__"):
        hint = "give the class or function that makes it"
        raise InputError("is a module already, and takes no arguments", where=_name_of(module), hint=hint)
    return module


def _name_of(module: object) -> str:
    found = module if hasattr(module, "__qualname__") else type(module)
    return f"{found.__module__}.{getattr(found, '__qualname__', type(module).__name__)}"


def main(asked: Path) -> None:
    """Do the check of a written request."""
    from encoder_conformance.commands.check.checking import Checking

    folder = asked.parent
    try:
        result = Checking(pickle.loads(asked.read_bytes()), folder / "check.log", SILENT).result()
    except InputError as error:
        problem = {"problem": error.problem, "where": error.where, "hint": error.hint}
        (folder / PROBLEM).write_text(json.dumps(problem), encoding="utf-8")
    else:
        (folder / RESULT).write_text(result.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
