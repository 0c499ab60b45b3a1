"""The files: whose exporter wrote each, which tool changed it, and what it was made from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from benchmarks.onnx_files import exporters, published
from benchmarks.onnx_files.modules import Pytorchs, drawn, layer
from benchmarks.onnx_files.tools import TOOLS

NOT_ENCODERS = {"deberta-v2": "distances that are projected, too (disentangled attention)"}
"""Models of transformers that the specification does not hold → why."""
CAUSAL = ("clip-text",)
"""Text encoders whose mask lets nobody look ahead: an error, unless a layer says so."""
COUNTED = "bert of ids", "fused"
"""ONNX Runtime's fused embedding counts the ones of a mask: holes, and padding on the left, are lost."""
FAST_VARIANCE = "pre", "jax2onnx"
"""Flax's LayerNorm takes E[x²] − E[x]² unless it is told (`use_fast_variance`): lost where the mean is large (E-1)."""
BASES = ("post-gelu traced", "pre-relu exported", "bert of ids")
"""The files that tools are given."""


@dataclass(frozen=True)
class File:
    """`make` writes it into an empty folder; where `tool` is named, from the file `source`. `due`: what `validate` has
    to come to: PyTorch's own layer, traced, is wrong at sizes other than the example's. `module`: what it was made
    from, where that is a layer of PyTorch."""

    name: str
    exporter: str
    make: Callable[[Path], Path]
    due: str = "right"
    tool: str = ""
    source: str = ""
    module: Callable[[], nn.Module] | None = None


def files() -> list[File]:
    return [*_layers(), *_published(), *_of_frameworks(), *_of_tools()]


def _layers() -> Iterator[File]:
    for placement in ("pre", "post"):
        for activation in ("gelu", "relu"):
            made = lambda p=placement, a=activation: layer(p, a)  # noqa: E731
            own = lambda p=placement, a=activation: drawn(Pytorchs(p, a))  # noqa: E731
            name = f"{placement}-{activation}"
            for opset in (14, 17):
                yield _traced(f"{name} traced{'' if opset == 17 else f', opset {opset}'}", made, opset)
            yield _exported(f"{name} exported", made)
            yield replace(_traced(f"nn.TransformerEncoderLayer {name} traced", own, 17), due="wrong")
            yield _exported(f"nn.TransformerEncoderLayer {name} exported", own)
        stack = lambda p=placement: drawn(Pytorchs(p, "gelu", 2))  # noqa: E731
        yield replace(_traced(f"nn.TransformerEncoder {placement} traced", stack, 17), due="wrong")


def _traced(name: str, made: Callable[[], nn.Module], opset: int) -> File:
    make = lambda folder: exporters.torchscript(made(), folder / "model.onnx", opset)  # noqa: E731
    return File(name, "torch.onnx.export, traced", make, module=made)


def _exported(name: str, made: Callable[[], nn.Module]) -> File:
    make = lambda folder: exporters.dynamo(made(), folder / "model.onnx")  # noqa: E731
    return File(name, "torch.onnx.export, dynamo", make, module=made)


def _published() -> Iterator[File]:
    for name in published.CONFIGS:
        make = lambda folder, name=name: published.exported(name, folder / "model.onnx")  # noqa: E731
        due = "refused" if name in NOT_ENCODERS else "wrong" if name in CAUSAL else "right"
        yield File(f"{name} of ids" if name == "bert" else name, "transformers, torch.onnx.export", make, due)
    for name in ("bert", "distilbert", "roberta", "albert", "vit"):
        make = lambda folder, name=name: exporters.optimums(name, folder)  # noqa: E731
        yield File(f"{name} by optimum", "optimum", make)


def _of_frameworks() -> Iterator[File]:
    for placement in ("pre", "post"):
        for exporter, write in (
            ("Keras", exporters.keras_own), ("tf2onnx", exporters.tf2onnxs), ("jax2onnx", exporters.jax2onnxs)
        ):  # fmt: skip
            make = lambda folder, w=write, p=placement: w(p, folder / "model.onnx")  # noqa: E731
            due = "wrong" if (placement, exporter) == FAST_VARIANCE else "right"
            yield File(f"{placement} by {exporter}", exporter, make, due)


def _of_tools() -> Iterator[File]:
    first = {file.name: file for file in (*_layers(), *_published())}
    for base in BASES:
        for name, (tool, convert) in TOOLS.items():

            def make(folder: Path, source: File = first[base], convert: Callable[[Path, Path], None] = convert) -> Path:
                (folder / "source").mkdir()
                convert(source.make(folder / "source"), folder / "model.onnx")
                return folder / "model.onnx"

            due = "wrong" if (base, name) == COUNTED else "right"
            yield File(f"{base}, {name}", first[base].exporter, make, due, tool=tool, source=base)
