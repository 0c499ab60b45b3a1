"""impls/pytorch's EncoderLayer against nn.TransformerEncoderLayer: its slow path, its fast path, and compiled."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.performance.layers.contest import (
    OURS,
    SEQUENCES,
    THREADS,
    Contest,
    Subject,
    both_ways,
    check_alike,
    forward,
    subject,
)
from encoder_conformance.impls.pytorch.adapter import PyTorch
from encoder_conformance.impls.torch_encoder_layer.adapter import TorchEncoderLayer

Layer = Callable[[Tensor], Tensor]


def made(of: Subject) -> tuple[nn.Module, nn.Module]:
    ours, theirs = PyTorch(), TorchEncoderLayer()
    theirs.choices = {"path": "slow"}
    for adapter in (ours, theirs):
        adapter.start("cpu", THREADS)
        adapter.build(of.layer, of.parameters, "float32")
    return ours.encoder.eval(), theirs.module.eval()


def on_path(layer: Layer, *, fast: bool) -> Layer:
    def called(x: Tensor) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(fast)
        return layer(x)

    return called


def inferred(layer: Layer, x: Tensor) -> Callable[[], Tensor]:
    def call() -> Tensor:
        with torch.inference_mode():
            return layer(x)

    return call


def differentiated(module: nn.Module, layer: Layer, x: Tensor, cotangent: Tensor) -> Callable[[], object]:
    given, parameters = x.clone().requires_grad_(), list(module.parameters())
    return lambda: torch.autograd.grad(layer(given), [given, *parameters], grad_outputs=cotangent)


def main() -> None:
    contest = Contest()
    for sequence in SEQUENCES:
        of = subject(sequence)
        ours, theirs = made(of)
        x, cotangent = torch.from_numpy(of.x), torch.from_numpy(of.cotangent)
        compiled = {OURS: torch.compile(ours, dynamic=False), "": torch.compile(theirs, dynamic=False)}
        plain: dict[str, tuple[nn.Module, Layer]] = {
            f"{OURS}eager": (ours, ours),
            "nn.TransformerEncoderLayer, slow path": (theirs, on_path(theirs, fast=False)),
        }
        more: dict[str, tuple[nn.Module, Layer]] = {
            f"{OURS}compiled": (ours, compiled[OURS]),
            "nn.TransformerEncoderLayer, compiled": (theirs, on_path(compiled[""], fast=False)),
        }
        fast = {"nn.TransformerEncoderLayer, fast path": (theirs, on_path(theirs, fast=True))}
        passes = {name: inferred(layer, x) for name, (_, layer) in (plain | fast | more).items()}
        check_alike({name: np.asarray(call()) for name, call in passes.items()})
        contest.row(forward(sequence), passes, sequence)
        trained = {
            name: differentiated(module, layer, x, cotangent) for name, (module, layer) in (plain | more).items()
        }
        contest.row(both_ways(sequence), trained, sequence)
    contest.show()


if __name__ == "__main__":
    main()
