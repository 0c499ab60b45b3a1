"""Files that do what their sources do, where no encoder of the specification does that; and faults beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from products import of_a_release

SOURCE = '''
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16, eps=epsilon)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)

    def forward(self, x, hidden=None):
        h = self.n1(x)
        q, k, v = (each(h).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.q, self.k, self.v))
        s = q @ k.transpose(-1, -2) / 8**0.5
        s = s if hidden is None else s.masked_fill(hidden, -1e9)
        x = x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Model(nn.Module):
    epsilon = 1e-5

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places, self.layer = nn.Embedding(50, 16), nn.Embedding(400, 16), Layer(self.epsilon)
        self.prefix = nn.Parameter(torch.randn(4, 16))
        self.eval()

    def hidden(self, mask):
        return mask[:, None, None] == 0

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        return self.layer(x, self.hidden(attention_mask))


class Norms(Model):
    epsilon = 1e-3


class Causal(Model):
    def hidden(self, mask):
        S = mask.shape[1]
        return super().hidden(mask) | torch.ones(S, S, dtype=torch.bool).triu(1)


class Pooled(Model):
    """The mean of what is not hidden, as of a sentence."""

    def forward(self, input_ids, attention_mask):
        seen = attention_mask[..., None].float().to(self.prefix.dtype)
        return (super().forward(input_ids, attention_mask) * seen).sum(1) / seen.sum(1).clamp(min=1)


class Prefix(Model):
    """With positions of its own before those of x."""

    def forward(self, input_ids, attention_mask):
        x = torch.cat([self.prefix.expand(input_ids.shape[0], -1, -1), self.words(input_ids)], 1)
        return self.layer(x, self.hidden(F.pad(attention_mask, (4, 0), value=1)))


class Vocabulary(Model):
    """More ids than are asked at ordinary sizes."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(3000, 16)


class Frames(Model):
    def forward(self, x, attention_mask):
        return self.layer(x, self.hidden(attention_mask))


class Narrow(Frames):
    """It gives float16 of values of float32."""

    def forward(self, x, attention_mask):
        return super().forward(x, attention_mask).half()


model, norms, causal, pooled, prefix, frames, narrow = Model, Norms, Causal, Pooled, Prefix, Frames, Narrow
vocabulary = Vocabulary


def export(module, name, **fed):
    told = {"input_names": [*fed], "output_names": ["y"], "opset_version": 17, "dynamo": False}
    axes = dict.fromkeys(fed, {0: "batch", 1: "sequence"})
    torch.onnx.export(module, tuple(fed.values()), f"{name}.onnx", dynamic_axes=axes, **told)


if __name__ == "__main__":
    ids = torch.ones(2, 5, dtype=torch.int64)
    for made in (Norms, Causal, Pooled, Prefix, Vocabulary):
        export(made(), made.__name__.lower(), input_ids=ids, attention_mask=ids)
    export(Narrow(), "narrow", x=torch.randn(2, 5, 16), attention_mask=ids)
    last = Model()
    last.places.weight.data[-1] *= 1.1
    export(last, "last_place", input_ids=ids, attention_mask=ids)
    rare = Vocabulary()
    rare.words.weight.data[2000] *= 1.1
    export(rare, "rare_id", input_ids=ids, attention_mask=ids)
'''


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    return exported(SOURCE)


def errors(result: dict[str, Any]) -> set[str]:
    return {each["kind"] for each in result["findings"] if each["severity"] == "error"}


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        ("norms", "norms-differ"),
        ("causal", "differs-from-source"),
        ("pooled", None),
        of_a_release("prefix", "size-baked-in"),
        ("narrow", "not-what-was-read"),
        of_a_release("vocabulary", None),
    ],
)
def test_a_file_does_what_its_source_does(against: Callable, name: str, warned: str | None) -> None:
    """Norms with an epsilon each, a causal mask that is built in, a mean that is summed up one after the other, more
    positions than x has, and an output that is narrower than x: each was an error."""
    status, result, _ = against(f"{name}.onnx", name)
    assert (status, errors(result), result["whole"]["agrees"]) == (0, set(), True), result["findings"]
    assert warned is None or warned in {each["kind"] for each in result["findings"] if each["severity"] == "warning"}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("narrow", "frames"),
        ("last_place", "model"),
        ("rare_id", "vocabulary"),
        *(of_a_release(each, "model") for each in ("norms", "causal")),
    ],
)
def test_and_what_it_does_not_is_a_fault(against: Callable, file: str, source: str) -> None:
    """The last row of a table of positions is asked, too: 300 positions were; and each of 3000 ids."""
    status, result, _ = against(f"{file}.onnx", source)
    assert (status, "output-differs" in errors(result)) == (1, True), result["findings"]
