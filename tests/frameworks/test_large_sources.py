"""A file of many parameters against its module, whose layers are read one by one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SOURCE = '''
import torch
from torch import nn
from torch.nn import functional as F


class Unmasked(nn.TransformerEncoderLayer):
    def forward(self, x, src_key_padding_mask=None):
        return super().forward(x)


class Stack(nn.Module):
    """Three layers of six million parameters."""

    def __init__(self, kind=nn.TransformerEncoderLayer, final_norm=True, hands=True, **second):
        super().__init__()
        self.hands = hands
        torch.manual_seed(0)
        told = {"activation": F.gelu, "batch_first": True, "dropout": 0.0}
        kinds, more = (nn.TransformerEncoderLayer, kind, nn.TransformerEncoderLayer), ({}, second, {})
        self.layers = nn.ModuleList(
            each(256, 4, 11264, **{**told, **others}) for each, others in zip(kinds, more, strict=True)
        )
        self.norm = nn.LayerNorm(256) if final_norm else nn.Identity()
        for name, value in self.named_parameters():
            nn.init.normal_(value, std=0.02 if value.ndim > 1 else 0.2)

    def forward(self, x, padding):
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding if self.hands else None)
        return self.norm(x)


def right():
    return Stack().eval()


def other_epsilon():
    return Stack(layer_norm_eps=1e-3).eval()


def other_activation():
    return Stack(activation=lambda x: F.gelu(x, approximate="tanh")).eval()


def without_mask():
    return Stack(Unmasked).eval()


def mask_dropped():
    return Stack(hands=False).eval()


def other_value():
    made = right()
    with torch.no_grad():
        made.layers[1].linear2.weight[5, 7] += 0.5
    return made


def other_final_norm():
    made = right()
    with torch.no_grad():
        made.norm.weight[3] += 0.5
    return made


if __name__ == "__main__":
    torch.backends.mha.set_fastpath_enabled(False)
    x, padding = torch.randn(2, 5, 256), torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    told = {"input_names": ["x", "padding"], "output_names": ["y"], "dynamic_shapes": (free, free)}
    torch.onnx.export(right(), (x, padding), "large.onnx", dynamo=True, verbose=False, external_data=True, **told)
'''


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    """A folder with the source and the file that was made from it, whose numbers are beside it."""
    return exported(SOURCE)


@pytest.fixture
def against(files: Path, conform: Callable, tmp_path: Path) -> Callable[[str], tuple[int, dict[str, Any], str]]:
    """Validate the file against a source: the exit status, the JSON, and what was printed."""

    def validated(source: str) -> tuple[int, dict[str, Any], str]:
        named, out = f"{files / 'source.py'}:{source}", tmp_path / "out"
        ended = conform("validate", files / "large.onnx", "--against", named, "--out", out, seconds=600)
        return ended.status, json.loads((out / "validation.json").read_text()), ended.stdout + ended.stderr

    return validated


def findings(validation: dict[str, Any], severity: str) -> list[dict[str, Any]]:
    return [each for each in validation["findings"] if each["severity"] == severity]


@pytest.mark.release
def test_the_layers_of_a_large_model_are_compared_one_by_one(against: Callable) -> None:
    status, validation, printed = against("right")
    assert (status, findings(validation, "warning")) == (0, []), printed
    assert validation["whole"]["agrees"]
    assert validation["whole"]["cases"]
    assert not validation["answers_compared"]
    assert validation["source_names"]["layers.1.feed_forward.output.weight"].startswith("layers.1.linear2.weight")
    assert validation["source_names"]["final_norm.gain"] == "norm.weight"
    assert len(validation["source_names"]) == 3 * 16 + 2
    said = {each["kind"]: each["message"] for each in findings(validation, "note")}
    assert "was not asked in onnxruntime disable" in said["sampled"]
    assert "its 3 layers, layers.0 to layers.2, were read each by itself" in said["too-large-as-one"]
    assert "each by itself hides positions by src_mask (true = ignore)" in said["too-large-as-one"]
    assert "parameters were compared, and no stage of it; end to end y" in " ".join(printed.split())


FAULTS = {
    "other_epsilon": ("layers-differ", "layers.1: norm.epsilon is 0.001 in layers.1 of"),
    "other_activation": ("layers-differ", "layers.1: feed_forward.activation is gelu_tanh in layers.1 of"),
    "without_mask": ("layers-differ", "hides positions by no mask, and its other layers by src_mask (true = ignore)"),
    "mask_dropped": ("mask-ignored", "gives the same whatever 'padding' hides, and the file does not"),
    "other_value": ("parameter-values-differ", "layers.1.feed_forward.output.weight"),
    "other_final_norm": ("parameter-values-differ", "final_norm.gain"),
}


FIRST_STEPS = {
    "other_epsilon": ("layers.1.norm1", "+ 0.001) * gain"),
    "without_mask": ("layers.1.self_attn",),
    "mask_dropped": ("layers.0.self_attn",),
    "other_value": ("layers.1.linear2",),
    "other_final_norm": ("norm",),
}
"""What is said of the first step of the file that is none of its source's; another GELU is as near as noise here."""


@pytest.mark.release
@pytest.mark.parametrize("source", FAULTS)
def test_the_layer_of_a_large_model_that_is_another_is_named(against: Callable, source: str) -> None:
    status, validation, printed = against(source)
    kind, named = FAULTS[source]
    assert status == 1, printed
    assert "output-differs" in {each["kind"] for each in findings(validation, "error")}
    told = [each["message"] for each in validation["findings"] if each["kind"] == kind]
    assert any(named in each for each in told), printed
    first = [each["message"] for each in validation["findings"] if each["kind"] == "first-step-apart"]
    assert len(first) == (source in FIRST_STEPS), printed
    assert all(word in first[0] for word in FIRST_STEPS.get(source, ())), first
