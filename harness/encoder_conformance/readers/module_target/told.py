"""What a user says of a module's call: values, a file of arrays, or `conform_inputs(batch, sequence)` beside it."""

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from encoder_conformance.readers.module_target.errors import BadTarget, error_line, last_frames
from encoder_conformance.readers.module_target.live import LiveModule, Signature
from encoder_conformance.readers.module_target.making import value_of
from encoder_conformance.readers.module_target.supplies import Supply, Told
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import listed

HOOK = "conform_inputs"
_SIZES = 3, 5
_BEGINNING = 16
"""How much of a file that is none of arrays is quoted, in bytes."""
_ARRAYS = f"give an array by def {HOOK}(batch, sequence) in its file, which gives a dict, or by --inputs FILE"
_FORM = "numpy.savez(path, x=…, NAME=…), each by the name of its argument"


def told_by(message: Mapping[str, Any], x_name: str, module: object) -> Told:
    """Raises BadTarget for a file or a function that gives nothing of use."""
    found = {name: Supply("value", value=_value_of(name, text)) for name, text in message["given"].items()}
    x, source = None, message["inputs"] or ""
    if source:
        x, held = _of_file(Path(message["folder"]) / source, x_name)
        found |= held
    if (hook := _hook_beside(message["target"], module)) is not None:
        try:
            names = hook(*_SIZES)
        except Exception as error:
            raise BadTarget(f"{HOOK}(batch, sequence) raises {last_frames(error)}") from None
        if not isinstance(names, Mapping):
            raise BadTarget(f"{HOOK}(batch, sequence) gives {type(names).__name__}", "it gives a dict by argument")
        found |= {name: Supply("made", value=hook) for name in names if name != x_name}
    return Told(found, x, source)


def _value_of(name: str, text: str) -> Any:
    """What `--with NAME=VALUE` says. No word calls something: who writes that means an array."""
    value = value_of(text)
    if isinstance(value, str) and re.fullmatch(r"[\w.]+\(.*\)", text):
        raise BadTarget(f"--with {name}={text}: that is no Python literal, and would be given as a word", _ARRAYS)
    return value


def _of_file(path: Path, x_name: str) -> tuple[Array, dict[str, Supply]]:
    """Its x, and the other arrays: their axes of the batch and the sequence are those of that size in x."""
    held = _arrays_of(path)
    if x_name not in held:
        raise BadTarget(f"--inputs: {path.name} has {listed(list(held))}, and no {x_name}", _FORM)
    x = held.pop(x_name)
    if x.ndim != 3 or x.dtype.kind != "f":
        problem = f"--inputs: {x_name} of {path.name} is {x.dtype} {list(x.shape)}"
        raise BadTarget(problem, f"it is floating-point numbers [batch, sequence, d_model]. {_FORM}")
    batch, sequence, _ = x.shape
    if batch == sequence:
        problem = f"--inputs: {x_name} of {path.name} has {batch} items of {batch} positions"
        raise BadTarget(problem, "with two different numbers the axes of the other arrays can be told apart")
    letters = {batch: "B", sequence: "S"}
    axes = {name: "".join(letters.get(size, "n") for size in value.shape) for name, value in held.items()}
    return x, {name: Supply("held", axes[name], str(value.dtype), value=value) for name, value in held.items()}


def _arrays_of(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise BadTarget(f"--inputs: there is no file {path.name}", f"it is looked for in {path.parent}")
    if not is_zipfile(path):  # NumPy would take it for a pickle
        with path.open("rb") as file:
            begins = file.read(_BEGINNING)
        raise BadTarget(f"--inputs: {path.name} is no .npz file of arrays: it begins with {begins!r}", _FORM)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise BadTarget(f"--inputs: {path.name} is no .npz file of arrays ({error_line(error)})", _FORM) from None


def _hook_beside(target: str, module: object) -> Callable[[int, int], Any] | None:
    source = target.rpartition(":")[0]
    names = (Path(source).stem if source.endswith(".py") else source, type(module).__module__)
    found = (getattr(sys.modules.get(name), HOOK, None) for name in names)
    return next((each for each in found if callable(each)), None)


def with_told(signature: Signature, told: Told) -> Signature:
    """A call with what a user says that its arguments are given. Raises BadTarget for one that it has not."""
    unknown = [
        name for name in told.beside if signature.names and not signature.hands_on and name not in signature.names
    ]
    if unknown:
        meant = difflib.get_close_matches(unknown[0], signature.names, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"it takes {', '.join(signature.names)}"
        raise BadTarget(f"it has no argument {unknown[0]!r} to be given", hint)
    return replace(signature, arrangement=signature.arrangement.giving(told.beside))


def as_told(module: LiveModule, told: Told) -> LiveModule:
    """Raises BadTarget for an argument that it has not, and where it does not take what a file has."""
    signature = module.signature
    said = module.arranged(with_told(signature, told).arrangement)
    if said is None:
        raise BadTarget("what its arguments are given cannot be said of a module of this framework")
    needs_more = any(value is None and name not in told.beside for name, value in signature.fixed.items())
    if told.x is not None and not needs_more:
        try:
            said.bare().run({"x": told.x.astype(np.float32)})
        except ExecutionError as error:
            held = [f"{name} {list(np.shape(each.value))}" for name, each in told.beside.items() if each.kind == "held"]
            shapes = ", ".join([f"{signature.x} {list(told.x.shape)}", *held])
            raise BadTarget(f"it does not take what {told.source} has, {shapes}: {error}") from None
    return said
