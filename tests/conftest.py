"""Options, and the public door: the command in a process of its own, and fakes that each lie in one way."""

import importlib
import json
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import forked
import other_user
import pytest
from acting import acting_in_required_cases
from alone import alone
from products import sample

from encoder_conformance.implementation.manifest import read_implementation_manifest
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.forms import VARIANTS
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import IMPLS
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.worker.sandbox import require_sandbox

HONEST = Path(__file__).resolve().parent / "fakes" / "honest"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--impl", metavar="NAME|FOLDER", help="the implementation that tests/frameworks/suite judges")
    levels = "the cases that tests/frameworks/suite asks: of this level and the stricter ones (default: all)"
    parser.addoption("--level", choices=LEVELS, default=LEVELS[-1], help=levels)


def pytest_configure() -> None:
    """A shell's background ignores Ctrl-C, and nohup a hangup; every command that a test ends by these would, too."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


NOT_TESTED = pytest.StashKey[list[str]]()
"""Lines for the end of a session: which tests this machine cannot run, and why."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test whose marker says what it needs is not selected where that is missing: none is green, and the end of the
    session says how many and why."""
    sample(items)
    for name, why_not in (
        *(("linux", _not_linux), ("sandbox", _no_sandbox), ("other_user", other_user.why_not)),
        *(("namespaces", _no_namespaces),),
        ("cpp", _no_compiler),
    ):
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := why_not()):
            items[:] = [item for item in items if item not in marked]
            config.hook.pytest_deselected(items=marked)
            line = f"NOT TESTED: {len(marked)} tests marked {name}: {reason}"
            config.stash.setdefault(NOT_TESTED, []).append(line)
    if lacking := {item: missing for item in items if (missing := _missing(item))}:
        items[:] = [item for item in items if item not in lacking]
        config.hook.pytest_deselected(items=[*lacking])
        names = ", ".join(sorted({name for missing in lacking.values() for name in missing}))
        line = f"NOT TESTED: {len(lacking)} tests that need what is in another environment: {names}"
        config.stash.setdefault(NOT_TESTED, []).append(line)


def _missing(item: pytest.Item) -> list[str]:
    """The packages that its markers name and that are not installed."""
    return [name for mark in item.iter_markers("needs") for name in mark.args if find_spec(name) is None]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process of pytest-xdist's: hand the lines to the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_tested"] = session.config.stash.get(NOT_TESTED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[NOT_TESTED] = getattr(node, "workeroutput", {}).get("not_tested", [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(NOT_TESTED, []):
        terminalreporter.write_line(line, yellow=True)


def _not_linux() -> str:
    return "" if sys.platform == "linux" else f"this is {sys.platform}"


def _no_namespaces() -> str:
    ended = (
        subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    return "" if ended and not ended.returncode else "no mount namespace can be made here (unshare -Urm)"


def _no_compiler() -> str:
    return "" if shutil.which("g++") else "no C++ compiler (g++) is on this machine"


def _no_sandbox() -> str:
    try:
        require_sandbox()
    except InputError as problem:
        return problem.problem
    return ""


@dataclass(frozen=True)
class Ended:
    """A command that ended: its status, what it printed, and the report that it left in `out`."""

    status: int
    stdout: str
    stderr: str
    out: Path

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        return found

    def outcomes(self, check: str | None = None, implementation: str | None = None) -> list[str]:
        """Outcomes in the order in which they were asked."""
        return [
            record["outcome"]
            for record in self.report["records"]
            if check in (None, record["check"]) and implementation in (None, record["implementation"])
        ]

    def messages(self) -> str:
        return "\n".join(record["message"] for record in self.report["records"])


@pytest.fixture
def conform(tmp_path: Path) -> Callable[..., Ended]:
    """Run `conform` with these arguments; `run` writes its report below the test's own folder.

    `diagnosed=False` leaves out the diagnosis, for a test that does not read what it says: in most runs it takes longer
    than all else. `faults` of ours are raised where `forked.conform` says.
    """

    def command(
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        diagnosed: bool = True,
        faults: Mapping[str, Exception] | None = None,
        seconds: int = 120,
    ) -> Ended:
        words = [str(argument) for argument in arguments]
        out = tmp_path / "report"
        if words and words[0] in ("run", "explain") and "--out" not in words and "--help" not in words:
            words += ["--out", str(out)]
        if env is not None:  # it may say where Python looks for modules, which is read at a start
            program = [Path(sys.executable).with_name("conform"), *words]
            told = {"capture_output": True, "text": True, "cwd": tmp_path, "env": env}
            ended = subprocess.run(program, timeout=seconds, check=False, **told)
            return Ended(ended.returncode, ended.stdout, ended.stderr, out)
        with tempfile.TemporaryDirectory() as printed:
            stdout, stderr = Path(printed, "stdout"), Path(printed, "stderr")
            left_out = {} if diagnosed else {"diagnosis.observations:Observations.diagnoses": None}
            status = forked.conform(words, tmp_path, stdout, stderr, seconds, {**left_out, **(faults or {})})
            return Ended(status, stdout.read_text(), stderr.read_text(), out)

    return command


@pytest.fixture
def maintain(tmp_path: Path) -> Callable[..., Ended]:
    """Run `python -m tools` with these arguments, from the checkout's root."""

    def command(*arguments: str) -> Ended:
        told = {"capture_output": True, "text": True, "cwd": HONEST.parents[2], "timeout": 120, "check": False}
        ended = subprocess.run([sys.executable, "-m", "tools", *arguments], **told)
        return Ended(ended.returncode, ended.stdout, ended.stderr, tmp_path / "report")

    return command


@pytest.fixture
def looked_at(conform: Callable[..., Ended]) -> Callable[[str], None]:
    """Trace and profile a small layer in one implementation: every stage is there, and takes time."""

    def look(name: str) -> None:
        sizes = ("--impl", name, "--layer", "pre-gelu", "--batch", "2", "--sequence", "5", "--json")
        traced, profiled = conform("trace", *sizes, "--judge"), conform("profile", *sizes, "--repeats", "3")
        assert traced.status == 0, traced.stdout + traced.stderr
        assert profiled.status == 0, profiled.stdout + profiled.stderr
        rows, times = json.loads(traced.stdout)["stages"], json.loads(profiled.stdout)
        assert {row["stage"] for row in rows} == {time["stage"] for time in times["stages"]}
        assert all(row["rms"] is not None for row in rows)
        assert times["total"] > 0
        assert times["whole"] > 0

    return look


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Path]:
    """Write an implementation's folder: the honest one, with `lie` as the body of a subclass of its adapter.

    `script` replaces the whole adapter; other arguments replace a `key: value` line of its manifest.
    """

    def write(name: str, lie: str = "", *, script: str | None = None, **manifest: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        lines = (HONEST / "impl.yaml").read_text().splitlines()
        replaced = {"name": name, **manifest}
        for key, value in replaced.items():
            [at] = [i for i, line in enumerate(lines) if line.strip().startswith(f"{key}:")]
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at] = f"{indent}{key}: {value}"
        (folder / "impl.yaml").write_text("\n".join(lines) + "\n")
        body = script or _LIAR.format(honest=HONEST, lie=textwrap.indent(textwrap.dedent(lie) or "pass", "    "))
        (folder / "adapter.py").write_text(textwrap.dedent(body))
        return folder

    return write


@pytest.fixture
def filled(conform: Callable[..., Ended], tmp_path: Path) -> Callable[[str], Path]:
    """The folder that `conform new` makes for a framework, with its blanks filled as `filling.py` has them."""

    def made(framework: str) -> Path:
        name = f"my_{framework}"
        assert conform("new", name, "--framework", framework).status == 0
        fill = runpy.run_path(str(HONEST.parents[1] / "filling.py"))["fill"]
        assert fill(tmp_path / name, framework) > 0
        return tmp_path / name

    return made


@pytest.fixture
def planted_forms(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Each wrong form that a deviation of required cases names is in tests/plants/NAME too: benchmarks/diagnosis.py
    plants them all. Those of additions (V-9) are not planted in a framework."""

    def same_forms(name: str) -> None:
        monkeypatch.syspath_prepend(str(HONEST.parents[1] / "plants"))
        plants = importlib.import_module(f"{name}.steps").VARIANTS
        acting = [catalogue()[each] for each in acting_in_required_cases()]
        named = {(step, form) for each in acting for step, form in each.patch.steps.items()}
        for step, every in VARIANTS.items():
            own_plants = plants.get(step, {})  # a form that no deviation names has none
            forms = {form for form in every if form in own_plants or (step, form) in named}
            if not forms:
                continue
            right = {"rms_norm", "shared_by_heads", "none"} - set(plants[step])  # a layer's choice, and no wrong form
            # A wrong form of a layer's choice is that of its standard form under one more name (forms_of).
            own = {f"{choice}-{form}" for choice in forms for form in forms}
            assert set(forms) - right - own | {"standard"} == set(plants[step]), step

    return same_forms


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The cases of level core, asked of an encoder of tests/plants in this process."""

    def driven(package: str, adapter: str, implementation: str, *norms: str) -> Any:
        monkeypatch.syspath_prepend(str(HONEST.parents[1] / "plants"))
        started = getattr(importlib.import_module(f"{package}.adapter"), adapter)()
        started.choices = read_implementation_manifest(IMPLS / implementation).chosen
        started.start("cpu", 1)
        return importlib.import_module("driving").Core(started, implementation, norms)

    return driven


_LIAR = """
import os, runpy, signal, time
from dataclasses import replace
import numpy as np
from encoder_conformance import Environment, Masks, RunRequest, serve

Honest = runpy.run_path("{honest}/adapter.py")["Honest"]


def harness():  # the process that judges: the parent of the guard, which is this one's parent
    with open(f"/proc/{{os.getppid()}}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


class Liar(Honest):
{lie}


serve(Liar())
"""


_WATCHED = """
import os
from pathlib import Path

import numpy as np

from encoder_conformance import Masks, serve
from encoder_conformance.impls.{name}.adapter import {adapter}


def seconds():
    # Processor time of each thread, in ticks: fields 14 and 15 of /proc/PID/task/TID/stat, proc(5).
    used = {{}}
    for thread in Path("/proc/self/task").iterdir():
        fields = (thread / "stat").read_text().rpartition(")")[2].split()
        used[thread.name] = int(fields[11]) + int(fields[12])
    return used


class Watched({adapter}):
    def output(self, x, masks, run):
        large, nothing = np.tile(x, (4, 16, 1)), Masks(None, None)
        for _ in range(2):
            super().output(large, nothing, run)  # compiles, and starts every thread
        before = seconds()
        for _ in range(8):
            super().output(large, nothing, run)
        spent = [after - before.get(thread, 0) for thread, after in seconds().items()]
        Path("share").write_text(str(max(spent) / sum(spent)))
        return super().output(x, masks, run)


serve(Watched())
"""


@pytest.fixture
def busiest_thread(conform: Callable[..., Ended], fake: Callable[..., Path]) -> Callable[[str, str, int], float]:
    """The share of the computing that an implementation's busiest thread does under `conform run --threads N`.

    In processor time, not wall time: how busy the machine is does not matter. It reads /proc: mark the test `linux`.
    """

    def share(name: str, adapter: str, threads: int) -> float:
        script = _WATCHED.format(name=name, adapter=adapter)
        folder = fake(f"watched_{threads}", script=script, checks="[output]")
        told = [choice.model_dump(mode="json") for choice in read_implementation_manifest(IMPLS / name).choices]
        manifest = (folder / "impl.yaml").read_text()
        (folder / "impl.yaml").write_text(
            manifest.replace("capabilities:", f"choices: {json.dumps(told)}\ncapabilities:")
        )
        case = ("--case", "post-relu-512/no-mask", "--dtype", "float32")
        ended = conform("run", "--impl", folder, *case, "--threads", str(threads))
        assert ended.status == 0, ended.stdout + ended.stderr
        assert ended.report["implementations"][0]["settings"]["threads"] == threads
        return float((folder / "share").read_text())

    return share


_WRONG_EPSILON = """
from encoder_conformance import serve
from encoder_conformance.impls.{name}.adapter import {adapter}


class Wrong({adapter}):
    def build(self, layer, parameters, dtype):
        return super().build({{**layer, "norm": {{**layer["norm"], "epsilon": 1e-3}}}}, parameters, dtype)


serve(Wrong())
"""


@pytest.fixture
def wrong_epsilon(conform: Callable[..., Ended], tmp_path: Path) -> Callable[..., None]:
    """An implementation with another epsilon fails within the first ten checks that it is asked, and is told why.

    A script of its framework alone shows it.
    """

    def fails_at_once(name: str, adapter: str, choices: str = "") -> None:
        folder = tmp_path / "wrong"
        folder.mkdir()
        manifest = (IMPLS / name / "impl.yaml").read_text().replace(f"name: {name}", "name: wrong", 1)
        (folder / "impl.yaml").write_text(manifest)
        (folder / "adapter.py").write_text(_WRONG_EPSILON.format(name=name, adapter=adapter))
        ended = conform("run", "--impl", f"{folder}{choices}", "--fail-fast", "--jobs", "1", "--dtype", "float32")
        assert ended.status == 1, ended.stdout + ended.stderr
        asked = [outcome for outcome in ended.outcomes() if outcome not in ("not-run", "unsupported")]
        assert asked.count("fail") >= 1
        assert len(asked) <= 10
        assert [diagnosis["deviations"] for diagnosis in ended.report["diagnoses"]] == [["norm-eps-1e-3"]]
        script = tmp_path / "shown.py"
        told = conform("reproduce", "--impl", f"{folder}{choices}", "--out", ended.out, "--to", script)
        assert told.status == 0, told.stdout + told.stderr
        shown = alone(script)
        assert shown.returncode == 1
        assert "does not conform: rms" in shown.stdout, shown.stderr

    return fails_at_once


@pytest.fixture
def honest() -> Path:
    return HONEST


@pytest.fixture
def honest_adapter() -> Any:
    """The honest fake's adapter, in this process."""
    return runpy.run_path(str(HONEST / "adapter.py"))["Honest"]()
