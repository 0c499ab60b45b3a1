"""Options, checks and output that several commands share."""

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from safetensors import SafetensorError
from safetensors.numpy import load_file

from encoder_conformance.errors import InputError
from encoder_conformance.impl.manifest import left_out
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike


def progress_bar() -> Progress:
    """A progress bar on stderr, hidden if stderr is no terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    screen = Console(stderr=True)
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)


class Duration(click.ParamType[float]):
    """Seconds, or a number with s, m or h: 90, 30s, 5m."""

    name = "duration"
    _SECONDS = MappingProxyType({"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0})

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).strip())
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is no time: write 90, 30s, 5m or 1h", param, ctx)
        return float(match[1]) * self._SECONDS[match[2]]


def interpreters(pythons: tuple[str, ...]) -> dict[str, str]:
    """Name → path of each `NAME=PATH` of --python. Raises InputError."""
    paths = {}
    for pair in pythons:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise InputError(
                f"{pair!r} is not NAME=PATH", where="--python", hint="for example keras_tf=/opt/tf/bin/python"
            )
        paths[name] = path
    return paths


def warn_of_left_out() -> None:
    """Print a line for each implementation of an installed package that cannot be loaded; the command continues."""
    for line in left_out().values():
        click.echo(f"conform: {line}", err=True)


def refuse_unwritable(out: Path) -> None:
    """Make the folder of --out. Raises InputError if it cannot be written, before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=f"--out {out}", hint="choose another folder"
        ) from None


PORTABLE = "portable"


def layer_parameters_of(layer: Layer, source: str) -> dict[str, npt.NDArray[Any]]:
    """The layer's parameters from --parameters: `portable` for the specification's own, or a safetensors file.

    Raises InputError if the file cannot be read or does not hold the layer's parameters.
    """
    if source == PORTABLE:
        return dict(layer_parameters(layer, {}))
    try:
        tensors: dict[str, npt.NDArray[Any]] = dict(load_file(source))
    except (OSError, SafetensorError) as error:
        hint = "safetensors in the specification's names (specs/README.md, R-1), or the word portable"
        raise InputError(f"cannot be read: {error}", where=f"--parameters {source}", hint=hint) from None
    if problem := unlike(layer, {name: np.shape(value) for name, value in tensors.items()}):
        raise InputError(f"holds no parameters of {layer.layer}: {problem}", where=f"--parameters {source}")
    return tensors
