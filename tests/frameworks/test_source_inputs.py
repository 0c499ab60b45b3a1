"""The inputs of a file, in the arguments of a source of PyTorch that has other names, another order or one mapping."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
import dataclasses

import onnx
import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Answer:
    hidden: torch.Tensor
    pooled: torch.Tensor


class Base(nn.Module):
    # No layer can be read of it: attention and a gated network stand side by side, and nothing skips them.
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.types = nn.Embedding(50, 16), nn.Embedding(2, 16)
        self.norm, self.qkv, self.o = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(32, 16)

    def run(self, ids, types, mask):
        x = self.words(ids) + self.types(types)
        h = self.norm(x)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        s = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(mask[:, None, None] == 0, torch.finfo(q.dtype).min)
        a, b = self.up(h).chunk(2, -1)
        y = self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)) + self.down(F.silu(a) * b)
        return y, y[:, 0]


class Exported(Base):
    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.run(input_ids, token_type_ids, attention_mask)


class Other(Base):
    def forward(self, tokens, segments, mask):
        return Answer(*self.run(tokens, segments, mask))


class Mask(Base):
    def forward(self, mask, types, ids):
        return dict(zip(("hidden", "pooled"), self.run(ids, types, mask)))


class Batch(Base):
    def forward(self, batch):
        return self.run(batch["ids"], batch["token_type_ids"], batch["attention_mask"])


class Sequence(Base):
    def forward(self, batch):
        ids, mask, types = batch
        return self.run(ids, types, mask)


class Unnamed(Base):
    def forward(self, a, b, c):
        return self.run(b, c, a)


class Keywords(Base):
    def forward(self, **given):
        return self.run(given["input_ids"], given["token_type_ids"], given["attention_mask"])


class Wrong(Unnamed):
    def run(self, ids, types, mask):
        return super().run((ids + 1) % 50, types, mask)


class Unclear(Base):
    def forward(self, ids, mask, position_ids):
        return self.run(ids, position_ids, mask)


if __name__ == "__main__":
    ids, mask, types = torch.ones(3, 2, 5, dtype=torch.int64)
    named = ["input_ids", "attention_mask", "token_type_ids"]
    for names, path in ((named, "named.onnx"), (["a1", "b1", "c1"], "plain.onnx")):
        told = {"input_names": names, "output_names": ["hidden", "pooled"], "opset_version": 17, "dynamo": False}
        axes = {name: {0: "batch", 1: "sequence"} for name in names}
        torch.onnx.export(Exported().eval(), (ids, mask, types), path, dynamic_axes=axes, **told)
"""


@pytest.fixture(scope="module")
def files(exported: Callable[[str], Path]) -> Path:
    return exported(SOURCE)


def notes(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["about"] for each in result["findings"] if each["kind"] == "inputs-given-by-order"]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("named.onnx", "Other"),
        ("named.onnx", "Mask"),
        ("named.onnx", "Batch"),
        ("named.onnx", "Sequence"),
        ("named.onnx", "Keywords"),
        ("named.onnx", "Unnamed"),
        ("plain.onnx", "Exported"),
        ("plain.onnx", "Mask"),
        ("plain.onnx", "Unnamed"),
    ],
)
def test_a_source_is_given_what_its_arguments_are(against: Callable, file: str, source: str) -> None:
    status, result, _ = against(file, source)
    assert (status, result["whole"]["agrees"]) == (0, True), result["findings"]


def test_what_was_assumed_is_said(against: Callable) -> None:
    _, result, _ = against("named.onnx", "Other")
    given = {"input_ids": "tokens", "attention_mask": "mask", "token_type_ids": "segments"}
    assert notes(result) == [{"given": given, "in_order": []}]


def test_a_file_that_is_right_in_no_order_is_wrong(against: Callable) -> None:
    status, result, _ = against("plain.onnx", "Wrong")
    assert (status, result["whole"]["agrees"]) == (1, False)
    assert [each["in_order"] for each in notes(result)] == [["a1", "b1", "c1"]]


def test_names_that_contradict_each_other_are_listed_and_nothing_is_compared(against: Callable) -> None:
    status, result, _ = against("named.onnx", "Unclear")
    [why] = result["whole"]["not_compared"]
    assert status == 2
    assert all(name in why for name in ("token_type_ids int64", "source ids, mask, position_ids"))
