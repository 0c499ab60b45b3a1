"""docs/mutants.md is what the kept counts say, and nothing there is explained falsely, or named wrongly."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""
LEAST = {
    "stages": 0.90,
    "output": 0.70,
    "pairs": 0.80,
    "output_pairs": 0.50,
    "backward": 0.90,
    **dict.fromkeys(("code", "code_pytorch", "code_keras"), 0.60),
}
"""Population → the least share of caught mutants whose equation is found."""


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.mutants.page")


def test_no_explanation_is_false_and_enough_equations_are_found(pages: ModuleType) -> None:
    populations = pages.read()
    assert populations.keys() == LEAST.keys()
    for name, found in populations.items():
        caught = found.count - found.kinds.get("equivalent", 0)
        assert found.kinds.get("false", 0) == 0, name
        assert found.kinds.get("closest-wrong", 0) == 0, name
        assert found.kinds["right"] >= LEAST[name] * caught, name
