"""docs/rewritings.md is what the kept results say, and no honest rewriting is accused there."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from encoder_conformance.spec.load import constants, load
from tools.core.criteria import small_required

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""
FORMATS = {"float64", "float32", "bfloat16", "float16"}


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.rewritings.page")


def test_no_honest_rewriting_is_accused(pages: ModuleType) -> None:
    results = pages.read()
    assert results.accused() == []
    assert len(results.honest()) >= 40
    assert {dtype for row in results.honest().values() for dtype in row.by_format} == FORMATS
    for name, row in results.honest().items():
        assert row.by_format, name
        for dtype, largest in row.by_format.items():
            assert largest.tensors > 0, (name, dtype)
            assert largest.rms <= constants().rms_limit, (name, dtype)
            assert largest.max <= constants().max_limit, (name, dtype)


def test_what_a_clause_calls_less_exact_is_accused_somewhere(pages: ModuleType) -> None:
    for name, row in pages.read().less_exact().items():
        assert sum(largest.accused for largest in row.by_format.values()), name


def test_every_small_required_golden_was_judged_at_three_seeds(pages: ModuleType) -> None:
    cases = [case for case in small_required(load().cases.values()) if not case.needs_no_golden]
    assert pages.read().goldens == len({case.golden_id for case in cases if case.situation.batch})
    assert pages.read().seeds == [0, 1, 2]


def test_an_accusation_stands_on_the_page(pages: ModuleType) -> None:
    results = pages.read()
    largest = next(iter(results.rows["as-specified"].by_format.values()))
    largest.accused, largest.worst = 1, ["pre-gelu/no-mask, seed 0, output: rms 3 σ, max 11 σ"]
    assert "**as-specified** in float64, 1 of" in pages.page(results)
    assert "None is accused." not in pages.page(results)
