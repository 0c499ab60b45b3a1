"""The step that a file computes otherwise than its source: found by values, and told in the project's words."""

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.onnx_files.edited import _traced
from benchmarks.onnx_files.modern_layers import BUGS, LAYERS, D, made
from encoder_conformance.blackbox.first_apart import FirstApart, first_apart
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.readers.module_target.frameworks.torch_trace import traced
from encoder_conformance.readers.onnx_file.calling import CalledFile

SAID = {
    "bias-lost": ("MatMul", "it gives what o: addmm makes plus a constant for each feature"),
    "first-half-lost": ("Mul", "where mul takes what select makes"),
    "gate-exchanged": ("", "and in its place there is mul"),
    "gate-lost": ("MatMul", "where down: addmm takes what mul makes"),
    "gelu-by-tanh": ("Mul", "GELU is its tanh approximation"),
    "heads-repeated": ("MatMul", "is what expand makes but for"),
    "keys-not-turned": ("", "takes what cat makes"),
    "layer-scale-lost": ("Add", "where add takes what mul makes"),
    "layer-scales-exchanged": ("Mul", "where mul takes what select makes"),
    "mask-ignored": ("Softmax", "makes, but 1200 of 4800 places fewer are hidden"),
    "mask-inverted": ("Where", "places more are hidden and"),
    "norm-before-heads": ("ReduceMean", "in its place there is mean"),
    "norm-centred": ("ReduceMean", "it takes 'x' where mean takes what mul makes"),
    "norm-eps": ("Add", "it gives what mean makes plus 0.001, and add that plus 1e-06"),
    "norm-of-queries-lost": ("MatMul", "where bmm takes what mul makes"),
    "norm-twice": ("ReduceMean", "in its place there is q: addmm and k: addmm"),
    "one-after-another": ("MatMul", "where up: addmm takes what mul makes"),
    "one-position-further": ("Add", "it gives what arange makes plus 1"),
    "one-sided": ("Where", "places fewer are hidden"),
    "one-slope": ("Mul", "in its place there is mul"),
    "one-wider": ("Where", "places fewer are hidden"),
    "outer-norm-lost": ("Add", "where add takes what mul makes"),
    "outer-norms-exchanged": ("Mul", "where mul takes what select makes"),
    "pairs-exchanged": ("Slice", "it gives what slice makes but for 1 of the 2 along its axis 3"),
    "relu-for-silu": ("Relu", "it computes maximum(a, 0) of a, what it takes, and not a * sigmoid(a)"),
    "residual-lost": ("ReduceMean", "where mean takes what add makes"),
    "residual-twice": ("Mul", "it gives 2 times input 'x'"),
    "scale-lost": ("", "is 2 times what div makes"),
    "scale-of-d-model": ("Div", "it gives 0.25 times what bmm makes, and div 0.5 times that"),
    "signed": ("Mul", "where mul takes what _to_copy makes"),
    "slopes-reversed": ("Add", "is what mul makes with its axis 0 in another order"),
    "softcap-6": ("Div", "it gives 0.166667 times what div makes, and div 0.2 times that"),
    "softcap-after-mask": ("Where", "where masked_fill takes what mul makes"),
    "softcap-lost": ("Where", "where masked_fill takes what mul makes"),
    "theta-1000": ("Mul", "it gives what mul makes but for 1 of the 2 along its axis 1"),
    "whole-steps": ("Add", "is 2 times what mul makes"),
    "window-lost": ("Where", "places fewer are hidden"),
}
"""Bug → the operator that is named, and what is said of it."""
SOON = {"geglu", "geglu:gelu-by-tanh", "geglu:norm-eps", "gqa:mask-ignored", "window:scale-of-d-model"}


def apart(path: Path, right: nn.Module) -> FirstApart | None:
    """Of a file and its source, on padded items."""
    x = torch.randn(3, 20, D, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(3, 20, dtype=torch.bool)
    mask[1, 12:], mask[2, 1::3] = False, False
    mine = TracedCall.of(
        *CalledFile(path, lambda model: pytest.fail("it is not deployed")).steps(
            "own", {"x": x.numpy(), "mask": mask.numpy()}
        )
    )
    narrow = TracedCall.of(*traced(right, {"x": x, "mask": mask}))
    wide = TracedCall.of(*traced(right.double(), {"x": x.double(), "mask": mask}))
    return first_apart(mine, wide, narrow)


def planted(named: list[str]) -> list[object]:
    return [pytest.param(each, marks=() if each in SOON else pytest.mark.release) for each in named]


@pytest.mark.parametrize("named", planted([*LAYERS]))
def test_no_step_of_a_right_file_is_apart(named: str, tmp_path: Path) -> None:
    assert apart(_traced(made(named), tmp_path / "model.onnx"), made(named)) is None


@pytest.mark.parametrize("named", planted([f"{name}:{bug}" for name, bugs in BUGS.items() for bug in bugs]))
def test_the_step_with_a_bug_is_named_and_told(named: str, tmp_path: Path) -> None:
    name, _, bug = named.partition(":")
    found = apart(_traced(made(named), tmp_path / "model.onnx"), made(name))
    operator, said = SAID[bug]
    assert found is not None
    assert found.made_by.startswith(operator)
    assert said in found.also


class Native(nn.Module):
    """A layer of PyTorch's own parts, which show nothing of their inside."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.norm = nn.RMSNorm(D) if bug == "rms" else nn.LayerNorm(D, eps=1e-3 if bug == "epsilon" else 1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q, k, v = (each(h).unflatten(-1, (4, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        hidden = ~mask if self.bug == "inverted" else mask
        scale = 1.0 if self.bug == "scale" else None
        context = nn.functional.scaled_dot_product_attention(
            q, v if self.bug == "values" else k, v, attn_mask=hidden[:, None, None, :], scale=scale
        )
        y = self.o(context.transpose(1, 2).flatten(2))
        y = nn.functional.gelu(y, approximate="tanh" if self.bug == "tanh" else "none")
        return x + y


def native(bug: str) -> nn.Module:
    torch.manual_seed(0)
    module = Native(bug)
    with torch.no_grad():
        for at, each in enumerate(module.parameters()):
            each.add_(0.2 * torch.randn(each.shape, generator=torch.Generator().manual_seed(at)))
    return module.eval()


@pytest.mark.parametrize(
    ("bug", "operator", "said"),
    [
        (
            "epsilon",
            "LayerNormalization",
            "it computes (a - mean(a, -1)) / sqrt(var(a, -1) + 0.001) * gain + shift of a",
        ),
        ("inverted", "Add", "places more are hidden and"),
        ("scale", "MatMul", "is 1.41421 times what mul makes"),
        ("values", "Mul", "in its place there is bmm"),
        ("tanh", "Mul", "GELU is its tanh approximation"),
    ],
)
def test_inside_of_the_frameworks_own_parts_too(bug: str, operator: str, said: str, tmp_path: Path) -> None:
    found = apart(_traced(native(bug), tmp_path / "model.onnx"), native(""))
    assert found is not None
    assert (found.made_by.split()[0], said in found.also) == (operator, True), (found, found.also)
    assert apart(_traced(native(""), tmp_path / "right.onnx"), native("")) is None
