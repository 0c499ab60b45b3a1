"""Honest rewritings of a layer in PyTorch: a few of `benchmarks/rewritings`, judged in the cases that were hard."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
HONEST = (
    "softmax-kahan", "softmax-exp2", "softmax-twice-shifted", "deferred-division", "block-softmax",
    "online-softmax", "products-in-order", "products-kahan", "norm-welford", "norm-affine", "relu-absolute",
    "gelu-erfc", "residual-bias-first", "parallel-heads", "parallel-network", "sdpa-flash", "by-hand",
)  # fmt: skip
LESS_EXACT = {
    "softmax-logsumexp": "pre-gelu/large-logits",
    "softmax-no-max": "post-gelu/extreme-logits",
    "norm-fast-variance": "pre-gelu/large-mean",
    "norm-matrix": "pre-relu/large-mean",
    "residual-onto": "pre-gelu-shared-heads/no-mask",
}


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.rewritings.judging")


@pytest.mark.parametrize(
    ("golden", "seed"),
    [
        ("post-relu-head-dim-1/low-variance", 0),
        ("post-rms-gelu-tanh/low-variance", 0),
        ("post-gelu-bert/low-variance", 1),
        ("post-relu/padding-right", 0),
        ("pre-gelu-uniform-rows/blind-queries", 0),
    ],
)
def test_no_honest_rewriting_is_accused(judging: ModuleType, golden: str, seed: int) -> None:
    found = judging.judged(numbers(judging, golden), seed, HONEST)
    assert {one.tensor for one in found} >= {"output", "gradient.attention.key.weight"}
    assert [str(one) for one in found if not one.conforms] == []


@pytest.mark.parametrize("name", LESS_EXACT)
def test_what_a_clause_calls_less_exact_is_accused(judging: ModuleType, name: str) -> None:
    found = judging.judged(numbers(judging, LESS_EXACT[name]), 0, [name])
    assert not all(one.conforms for one in found)


def test_the_page_has_the_rewritings_of_the_catalogue(judging: ModuleType) -> None:
    page = importlib.import_module("benchmarks.rewritings.page")
    rows = page.read().rows
    assert {(name, row.group, row.says, row.less_exact) for name, row in rows.items()} == {
        (name, one.group, one.says, one.less_exact) for name, one in judging.CATALOGUE.items()
    }


def numbers(judging: ModuleType, golden: str) -> object:
    return next(each for each in judging.numbers() if each.case.id == golden)
