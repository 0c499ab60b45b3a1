"""Options, checks and output that several commands share. Options are declared without NumPy and pydantic."""

import contextlib
import functools
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from encoder_conformance.commands.completion import cases
from encoder_conformance.engine.run_options import RANDOM
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import UnwritableError, replace_file, require_regular
from encoder_conformance.platform.progress import Progress
from encoder_conformance.platform.screen import fits
from encoder_conformance.reports.run.folder import LATEST, RUNS
from encoder_conformance.spec.level import DTYPES, LEVELS
from encoder_conformance.worker.limits import WorkerLimits, default_memory

if TYPE_CHECKING:
    import numpy.typing as npt
    from pydantic import BaseModel
    from rich.progress import Progress as ProgressBar

    from encoder_conformance.judging.records import Shard
    from encoder_conformance.spec.layer import Layer


class NamedPath(click.Path):
    """A path that names something, in one line. An empty one, such as an unset variable of a shell gives, would be the
    working directory."""

    def __init__(self, **more: Any) -> None:
        super().__init__(path_type=Path, **more)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("is empty: name a file or folder, or . for the working directory", param, ctx)
        if "\n" in str(value):
            self.fail(f"has a line break: {value!r}", param, ctx)
        return super().convert(value, param, ctx)


ANY_PATH = NamedPath()
FILE = NamedPath(dir_okay=False)
GIVEN_FILE = NamedPath(exists=True, dir_okay=False)
FOLDER = NamedPath(file_okay=False)
"""Types of options: a path of whatever is there, a file or a folder that may be made, a file that is there."""
run_option = click.option(
    "--out",
    type=ANY_PATH,
    default=RUNS / LATEST,
    show_default=True,
    help="The run's folder; default: that of the last run without --out.",
)
overwrite_site_option = click.option("--overwrite", is_flag=True, help="Replace an earlier site in that folder.")
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    callback=lambda _, __, value: value or os.cpu_count() or 1,
    help="Processes that compute; default: one for each processor.",
)
"""The command gets `jobs`, at least 1."""
cases_option = click.option(
    "--case",
    "globs",
    multiple=True,
    metavar="GLOB",
    shell_complete=cases,
    help="Cases to run, as layer/situation; default: all.",
)
"""The command gets `globs`."""
level_option = click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="core",
    show_default=True,
    help="Only cases of this level or a stricter one.",
)
dtypes_option = click.option(
    "--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="Default: every dtype of each case."
)


def interpreters_option(what: str) -> Callable[..., Any]:
    """--python NAME=PATH, which the command gets as `pythons`, a dict. `what`: whose interpreter."""
    example = "for example keras_tf=/opt/tf/bin/python"
    return _pairs_option("--python", "pythons", "NAME=PATH", f"Interpreter for {what}.", example, empty=False)


def arguments_option(what: str) -> Callable[..., Any]:
    """--arg NAME=VALUE, which the command gets as `arguments`, a dict. `what`: whose argument."""
    example = "for example --arg d_model=64 or --arg 'cfg=Config(dim=64)'"
    return _pairs_option("--arg", "arguments", "NAME=VALUE", f"Argument of {what}.", example, empty=True)


def given_option() -> Callable[..., Any]:
    """--with NAME=VALUE, which the command gets as `given`, a dict."""
    text = "What an argument of its call is given, as a Python literal: for what is not found by trying."
    return _pairs_option("--with", "given", "NAME=VALUE", text, "for example --with causal=False", empty=True)


def _pairs_option(option: str, name: str, form: str, text: str, example: str, *, empty: bool) -> Callable[..., Any]:
    """An option whose values, each `form`, the command gets by name. `empty`: a value may be ""."""

    def by_name(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        values = {}
        for pair in given:
            key, equals, value = pair.partition("=")
            if not (key and equals and (value or empty)):
                raise InputError(f"{pair!r} is not {form}", where=option, hint=example)
            values[key] = value
        return values

    return click.option(option, name, multiple=True, metavar=form, callback=by_name, help=text)


def result_options(command: str, file: str) -> Callable[..., Any]:
    """--out, the folder of `file`, and --json, which prints it: the command gets `out` and `as_json`."""
    default = f"default: a new one in {RUNS / command}, to which {RUNS / command / LATEST} then points."
    folder = click.option("--out", type=FOLDER, help=f"Folder for {file} and the workers' logs; {default}")
    printed = click.option("--json", "as_json", is_flag=True, help=f"{file} on standard output, and nothing else.")
    return lambda command: folder(printed(command))


def deliver(path: Path, result: "BaseModel", show: Callable[[], None], *, as_json: bool) -> None:
    """Write a result to its file, and show it, or print the file. Raises UnwritableError, once it is shown."""
    text = result.model_dump_json(indent=1)
    problem: UnwritableError | None = None
    try:
        replace_file(path, text.encode())
    except UnwritableError as error:
        problem = error
    if as_json:
        click.echo(_as_shown(text))
    else:
        show()
    if problem:
        raise problem
    if not as_json:
        click.echo(f"Everything: {path}")


@contextmanager
def file_alone(path: Path | None) -> Iterator[None]:
    """Print nothing, and at the end the file (--json). None: print what is printed."""
    if path is None:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
    if path.is_file():  # a full disk has none, and the exit status says so
        click.echo(_as_shown(path.read_text(encoding="utf-8")), nl=False)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(_as_shown(json.dumps(value, indent=1, ensure_ascii=False)))


def _as_shown(text: str) -> str:
    """JSON in characters that standard output has: others stand as they may in JSON, and are lost to nobody."""
    return text if fits(text) else "".join(each if each.isascii() else json.dumps(each)[1:-1] for each in text)


@contextmanager
def progress_bar() -> Iterator["ProgressBar"]:
    """A progress bar on stderr, hidden if stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar
    from rich.table import Column

    screen = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    bar = ProgressBar(*columns, console=screen, transient=True, expand=True, disable=not screen.is_terminal)
    with bar if screen.is_terminal else nullcontext():  # rich before 15 ends what it did not show with an empty line
        yield bar


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """One bar for all tasks, one after the other."""
    with progress_bar() as bar:
        task = bar.add_task("starting")
        yield Progress(
            begin=lambda what, total: bar.reset(task, total=total, description=what),
            step=lambda what: bar.update(task, advance=1, description=what),
            say=lambda what: bar.update(task, description=what),
        )


_T = TypeVar("_T")

if TYPE_CHECKING:
    _Of = click.ParamType
else:

    class _Of(click.ParamType, Generic[_T]):
        """click's own says of what it is from 8.4 on alone."""


class Duration(_Of[float]):
    """Seconds, or a number with s, m or h: 90, 30s, 5m."""

    name = "duration"
    _SECONDS = MappingProxyType({"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0})

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).strip())
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no time: write 90, 30s, 5m or 1h", param, ctx)
        return float(match[1]) * self._SECONDS[match[2]]


class Seed(click.IntRange):
    """A number from 0, or the word random, which draws one that has no frozen goldens."""

    name = "seed"

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value != RANDOM:
            return int(super().convert(value, param, ctx))
        seed = 1 + secrets.randbelow(10**9)
        click.echo(f"Drawn: --seed {seed}", err=True)
        return seed


class PartType(_Of["Shard"]):
    """A part of a plan: 2/3 is the second of three."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Shard":
        from encoder_conformance.judging.records import Shard

        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(value))
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            self.fail(f"{value!r} is no part: write 1/3, 2/3 or 3/3", param, ctx)
        return Shard(number=int(match[1]), of=int(match[2]))


class Size(_Of[int]):
    """Bytes, with a unit: 500MB, 4GiB."""

    name = "size"
    _UNITS = MappingProxyType(
        {"": 1}
        | {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}
        | {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)}
    )

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]i?B|)", str(value).strip())
        size = round(float(match[1]) * self._UNITS[match[2]]) if match else 0
        if not 1 << 20 <= size < 1 << 60:
            self.fail(f"{value!r} is no size from 1MiB on: write 500MB or 4GiB", param, ctx)
        return size


memory_option = click.option(
    "--memory", type=Size(), metavar="SIZE", help="Memory of each worker, 4GiB; default: three quarters of all."
)


def worker_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --memory and --isolate, which the command gets as `limits`."""

    @memory_option
    @click.option("--isolate", is_flag=True, help="Run workers without network and home (docs/untrusted.md).")
    @functools.wraps(command)
    def limited(*arguments: Any, memory: int | None, isolate: bool, **options: Any) -> Any:
        if isolate:
            from encoder_conformance.worker.sandbox import require_sandbox

            require_sandbox()
        return command(*arguments, limits=WorkerLimits(memory or default_memory(), isolate), **options)

    return limited


def warn_of_left_out() -> None:
    """Print a line for each implementation of an installed package that cannot be loaded; the command continues."""
    from encoder_conformance.implementation.manifest import left_out

    for line in left_out().values():
        click.echo(f"conform: {line}", err=True)


PORTABLE = "portable"


def layer_parameters_of(layer: "Layer", source: str) -> "dict[str, npt.NDArray[Any]]":
    """The layer's parameters from --parameters: `portable` for the specification's own, or a safetensors file.

    Raises InputError if the file cannot be read or does not hold the layer's parameters.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.parameters import unlike

    if source == PORTABLE:
        return dict(layer_parameters(layer, {}))
    hint = "safetensors in the specification's names (specs/README.md, R-1), or the word portable"
    require_regular(Path(source), f"--parameters {source}", hint)
    try:
        tensors: dict[str, npt.NDArray[Any]] = dict(load_file(source))
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=f"--parameters {source}", hint=hint) from None
    if problem := unlike(layer, {name: value.shape for name, value in tensors.items()}):
        raise InputError(f"holds no parameters of {layer.layer}: {problem}", where=f"--parameters {source}")
    return tensors
