"""Files of waveforms, images and memories beside their sources: at the sizes that those take, and at uneven ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from products import of_a_release

SOURCE = '''
import torch
from torch import nn
from torch.nn import functional as F


class Base(nn.Module):
    """A layer that may be given two masks, inside of models that take none."""

    def __init__(self, fault=""):
        super().__init__()
        torch.manual_seed(0)
        self.fault, self.layer = fault, Layer()
        self.build()
        self.eval()

    def build(self):
        pass


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)

    def attend(self, x, memory, hidden=None, bias=None):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (self.q(x), self.k(memory), self.v(memory)))
        s = q @ k.transpose(-1, -2) / 8**0.5
        s = s if bias is None else s + bias
        s = s if hidden is None else s.masked_fill(hidden, -1e9)
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x, hidden=None, bias=None):
        h = self.n1(x)
        x = x + self.attend(h, h, hidden, bias)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Waveform(Base):
    def build(self):
        self.c1, self.c2 = nn.Conv1d(1, 8, 10, 5), nn.Conv1d(8, 16, 3, 2)

    def forward(self, waveform):
        x = F.gelu(self.c1(waveform[:, None]))
        return self.layer(self.c2(F.pad(x, (0, 1)) if self.fault else x).transpose(1, 2))


class Image(Base):
    """Each patch has a row of a table by its row and column."""

    def build(self):
        self.conv, self.table = nn.Conv2d(3, 16, 4, 4), nn.Embedding(2000, 16)

    def forward(self, pixel_values):
        x = self.conv(pixel_values)
        rows, columns = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[3])
        at = rows * x.shape[2 if self.fault == "height" else 3] + columns
        return self.layer((x + self.table(at).permute(2, 0, 1)).flatten(2).transpose(1, 2))


class Windows(Base):
    """Windows of 4 x 4 on 8 x 8 patches, of which the last hide what was shifted in from the other side."""

    def build(self):
        self.conv = nn.Conv2d(3, 16, 4, 4)

    def forward(self, pixel_values):
        x = torch.roll(self.conv(pixel_values).permute(0, 2, 3, 1), (-2, -2), (1, 2))
        side = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
        of = (side[:, None] * 3 + side).reshape(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
        hidden = (of[:, None] != of[:, :, None])[:, None]
        hidden = torch.zeros_like(hidden) if self.fault else hidden
        parts = x.reshape(-1, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 16)
        y = self.layer(parts, hidden.repeat(x.shape[0], 1, 1, 1))
        return y.reshape(-1, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, 16)


class Memory(Base):
    """What x sees of a memory, less for a longer one."""

    def forward(self, hidden_states, encoder_hidden_states, encoder_attention_mask):
        length = (hidden_states if self.fault == "length" else encoder_hidden_states).shape[1]
        x = self.layer(hidden_states)
        return x + self.layer.attend(x, encoder_hidden_states, encoder_attention_mask[:, None, None] == 0) / length


class Unused(Base):
    """Token types change nothing, and stay an input of the file."""

    def build(self):
        self.words = nn.Embedding(50, 16)

    def forward(self, input_ids, token_type_ids):
        return self.layer(self.words(input_ids) + 0.0 * token_type_ids[..., None])


waveform, image, windows, memory, unused = Waveform, Image, Windows, Memory, Unused


def export(module, name, axes, **fed):
    told = {"input_names": [*fed], "output_names": ["y"], "opset_version": 17, "dynamo": False}
    torch.onnx.export(module, tuple(fed.values()), f"{name}.onnx", dynamic_axes=axes, **told)


if __name__ == "__main__":
    items, pixels = {0: "batch"}, {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    mask, lengths = torch.ones(2, 9, dtype=torch.int64), {0: "batch", 1: "memory"}
    seen = {"encoder_hidden_states": torch.randn(2, 9, 16), "encoder_attention_mask": mask}
    for fault in ("", "fault"):
        end = "_wrong" if fault else ""
        samples = {"waveform": {0: "batch", 1: "samples"}}
        export(Waveform(fault), f"waveform{end}", samples, waveform=torch.randn(2, 400))
        export(Windows(fault), f"windows{end}", {"pixel_values": items}, pixel_values=torch.randn(2, 3, 32, 32))
    for fault in ("", "height"):
        export(Image(fault), f"image{'_wrong' if fault else ''}", pixels, pixel_values=torch.randn(2, 3, 24, 32))
    for fault in ("", "length"):
        axes = {"hidden_states": {0: "batch", 1: "sequence"}, **dict.fromkeys(seen, lengths)}
        export(Memory(fault), f"memory{'_wrong' if fault else ''}", axes, hidden_states=torch.randn(2, 5, 16), **seen)
    both = dict.fromkeys(("input_ids", "token_type_ids"), {0: "batch", 1: "sequence"})
    export(Unused(), "unused", both, input_ids=mask, token_type_ids=mask)
'''


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    return exported(SOURCE)


def kinds(result: dict[str, Any], severity: str) -> set[str]:
    return {each["kind"] for each in result["findings"] if each["severity"] == severity}


@pytest.mark.parametrize("name", ["waveform", "windows", "memory", *map(of_a_release, ("image", "unused"))])
def test_a_file_is_what_its_source_is(against: Callable, name: str) -> None:
    """A convolution takes no fewer than it spans, a window of an image hides what another does not, and a memory is no
    mask: of each the file was wrong, or not examined."""
    status, result, _ = against(f"{name}.onnx", name)
    assert (status, kinds(result, "error"), result["whole"]["agrees"]) == (0, set(), True), result["findings"]


@pytest.mark.parametrize("name", ["waveform", "image", "memory", of_a_release("windows")])
def test_a_fault_is_one_at_sizes_that_the_source_takes(against: Callable, name: str) -> None:
    """That of the image shows where it is no square, that of the memory where it is longer than x."""
    status, result, _ = against(f"{name}_wrong.onnx", name)
    assert status == 1
    assert "output-differs" in kinds(result, "error"), result["findings"]


def test_what_a_part_may_be_given_is_no_mask_of_a_model_that_takes_none(against: Callable) -> None:
    _, result, said = against("waveform.onnx", "waveform")
    assert not kinds(result, "warning") & {"mask-missing", "mask-unmatched"}
    assert "it cannot be padded, as" not in said
