"""What a user says of a module's call: values, a file of arrays, or `conform_inputs(batch, sequence)` beside it."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.readers.module_target.arranging import Supply
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames
from encoder_conformance.readers.module_target.loading import value_of
from encoder_conformance.readers.onnx_file.interface.mask_semantics import axes_at

HOOK = "conform_inputs"
_SIZES = 3, 5


def told_by(message: Mapping[str, Any], x_name: str, module: object) -> dict[str, Supply]:
    """Argument → what it is given. Raises BadTarget for a file or a function that gives nothing of use."""
    found = {name: Supply("value", value=value_of(text)) for name, text in message["given"].items()}
    if message["inputs"]:
        found |= _of_file(Path(message["folder"]) / message["inputs"], x_name)
    if (hook := _hook_beside(message["target"], module)) is not None:
        try:
            names = hook(*_SIZES)
        except Exception as error:
            raise BadTarget(f"{HOOK}(batch, sequence) raises {last_frames(error)}") from None
        if not isinstance(names, Mapping):
            raise BadTarget(f"{HOOK}(batch, sequence) gives {type(names).__name__}", "it gives a dict by argument")
        found |= {name: Supply("made", value=hook) for name in names if name != x_name}
    return found


def _of_file(path: Path, x_name: str) -> dict[str, Supply]:
    """The arrays of a file, whose axes of the batch and the sequence are those of its x."""
    if path.suffix != ".npz" or not path.is_file():
        raise BadTarget(f"--inputs: {path.name} is no .npz file that is there", "numpy.savez(path, x=…, NAME=…)")
    with np.load(path, allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    if x_name not in held or held[x_name].ndim != 3:
        raise BadTarget(
            f"--inputs: {path.name} has no {x_name} [batch, sequence, d_model]", "its sizes tell the others"
        )
    batch, sequence, _ = held.pop(x_name).shape
    return {
        name: Supply("held", axes_at(value.shape, batch, sequence), str(value.dtype), value=value)
        for name, value in held.items()
    }


def _hook_beside(target: str, module: object) -> Callable[[int, int], Any] | None:
    source = target.rpartition(":")[0]
    names = (Path(source).stem if source.endswith(".py") else source, type(module).__module__)
    found = (getattr(sys.modules.get(name), HOOK, None) for name in names)
    return next((each for each in found if callable(each)), None)
