"""Files with edits, each against the file without, and how far numbers alone tell that they are apart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn

from benchmarks.onnx_files import exporters, judging, modern_layers
from benchmarks.onnx_files.edits import EDITS, applicable
from benchmarks.onnx_files.modules import layer
from benchmarks.onnx_files.page import NO_NUMBERS
from encoder_conformance.spec.axes import Array

SIZES = ((1, 1), (1, 6), (2, 11), (4, 29))
PER_FILE = 6


@dataclass(frozen=True)
class Base:
    """A right file: a module, and the exporter that writes it."""

    name: str
    module: Callable[[], nn.Module]
    write: Callable[[nn.Module, Path], Path]
    width: int


def bases() -> Iterator[Base]:
    """Two classic layers by two exporters, and the twelve of today."""
    for placement in ("post", "pre"):
        yield Base(f"{placement}, traced", lambda p=placement: layer(p, "gelu"), exporters.torchscript, 32)
        yield Base(f"{placement}, exported", lambda p=placement: layer(p, "relu"), exporters.dynamo, 32)
    for name in modern_layers.LAYERS:
        yield Base(name, lambda n=name: modern_layers.made(n), _traced, modern_layers.D)


def _traced(module: nn.Module, path: Path) -> Path:
    given = torch.randn(2, 7, modern_layers.D), torch.ones(2, 7, dtype=torch.bool)
    return exporters.traced(module, path, given, ["x", "mask"], ["y"])


@dataclass(frozen=True)
class Edited:
    base: Base
    edit: str

    @property
    def name(self) -> str:
        return f"{self.base.name}: {self.edit}"


def edited(base: Base, folder: Path) -> list[Edited]:
    """Some of the edits that the file has a place for: others for each file, so that each edit comes somewhere."""
    known = [name for name, _ in applicable(onnx.load(base.write(base.module(), folder / "model.onnx")))]
    first = [each.name for each in bases()].index(base.name)
    step = max(len(known) // PER_FILE, 1)
    chosen = [known[(first + number * step) % len(known)] for number in range(PER_FILE)]
    return [Edited(base, edit) for edit in EDITS if edit in chosen]


def all_edited(folder: Path) -> Iterator[Edited]:
    for number, base in enumerate(bases()):
        (folder / str(number)).mkdir()
        yield from edited(base, folder / str(number))


def edited_row(each: Edited, folder: Path) -> dict[str, Any]:
    """Whether the numbers are apart, and what was said against the right file."""
    for name in ("right", "wrong"):
        (folder / name).mkdir()
    right, wrong = each.base.write(each.base.module(), folder / "right" / "model.onnx"), folder / "wrong" / "model.onnx"
    onnx.save(dict(applicable(onnx.load(right)))[each.edit], wrong)
    apart = sigmas_apart(wrong, right, each.base)
    found = judging.validated(wrong, right, folder)
    said = next((error.message for error in found.errors), "").replace(f"{folder}/", "")[:300]
    return {"apart": apart, "status": found.status, "said": said}


def sigmas_apart(wrong: Path, right: Path, base: Base) -> float:
    """The largest rms of what the edit changes, beside what float32 makes of the right file."""
    module = base.module().double()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # threads that wait for each other take longer than these files
    session = ort.InferenceSession(str(right), options, providers=["CPUExecutionProvider"])
    try:
        other = ort.InferenceSession(str(wrong), options, providers=["CPUExecutionProvider"])
    except Exception:  # a runtime has a class of its own for every status
        return NO_NUMBERS
    largest = 0.0
    for batch, sequence in SIZES:
        for mask in _masks(batch, sequence):
            x = np.random.default_rng(batch).normal(size=(batch, sequence, base.width))
            with torch.no_grad():
                due = module(torch.from_numpy(x), torch.from_numpy(mask)).numpy()
            given = {"x": x.astype(np.float32), "mask": mask}
            noise = _rms(session.run(None, given)[0] - due)
            try:
                error = _rms(other.run(None, given)[0] - due)
            except Exception:
                return NO_NUMBERS
            least = _rms(due) * 2.0**-24
            largest = max(largest, error / max(noise, least) if np.isfinite(error) else NO_NUMBERS)
    return largest


def _masks(batch: int, sequence: int) -> Iterator[Array]:
    """Nothing hidden; and of each item some positions, the first item whole."""
    yield np.ones((batch, sequence), np.bool_)
    if sequence > 1:
        lengths = np.resize([sequence, sequence // 2, 1], batch)
        yield np.arange(sequence) < lengths[:, None]
        yield np.arange(sequence)[None] % 3 != np.arange(batch)[:, None] % 3


def _rms(value: Array) -> float:
    return float(np.sqrt(np.mean(np.square(value.astype(np.float64)))))
