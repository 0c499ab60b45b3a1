"""docs/performance.md is what the kept figures say, and every figure that has a target there is kept."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""
RATIOS = {
    f"layers-{framework}": [f"{way}, S={sequence}" for sequence in (50, 512) for way in ways]
    for framework, ways in {
        "pytorch": ("forward", "forward and backward"),
        "keras": ("forward", "forward and backward"),
        "jax": ("forward", "forward and backward"),
        "onnx": ("forward",),
    }.items()
}
TARGETS = {
    "overhead": {"one": 1.15, "one-worker": 1.15},
    "overhead-of-four": {},
    "verdicts": {"warm": 200.0},
    "checks": {
        **{"torch_layer": 6.0, "keras_block": 12.0, "flax_block": 20.0},
        **dict.fromkeys(("torch_layer-again", "keras_block-again", "flax_block-again"), 3.0),
    },
    "memory": dict.fromkeys(("hundred", "thousand", "thousands", "ten-thousand"), 200.0),
    "load": {"checks-memory": 200.0, "checks-processor": 3.0, "records-linear": 1.1, "records-memory": 200.0},
    "files": {"one": 10.0, "all": 25.0, "twelve": 60.0, "twelve-memory": 3000.0},
    "sources": {"twelve": 90.0, "twelve-memory": 3000.0},
    "site": {
        "size": 5.0,
        "first-paint": 1000.0,
        **{f"filter-by-{name}": 100.0 for name in ("level", "layer", "situation", "dtype", "outcome")},
    },
    "startup": {},
    **{section: dict.fromkeys(rows, 1.05) for section, rows in RATIOS.items()},
}
"""Section → figure → the target that its issue set."""


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """benchmarks/performance/page.py, read from the checkout: it is no part of what is installed."""
    spec = importlib.util.spec_from_file_location("performance_page", ROOT / "benchmarks" / "performance" / "page.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_target_has_its_figure(pages: ModuleType) -> None:
    answers = pages.read().answers
    found = {
        section: {
            figure.id: figure.at_least if figure.at_most is None else figure.at_most
            for figure in answer.figures
            if figure.met is not None
        }
        for section, answer in answers.items()
    }
    assert found == TARGETS


def test_a_figure_is_the_median_of_what_was_taken(pages: ModuleType) -> None:
    for answer in pages.read().answers.values():
        for figure in answer.figures:
            again = pages.median_of(figure.id, figure.what, figure.kind, figure.taken)
            assert figure.value == again.value, figure.what


def test_what_misses_its_target_says_why(pages: ModuleType) -> None:
    for name, answer in pages.read().answers.items():
        for figure in answer.figures:
            assert figure.met is not False or (name, figure.id) in pages.REASONS, f"{name}: {figure.what}"


def test_a_target_is_met_from_its_own_side(pages: ModuleType) -> None:
    def met(value: float, **target: float) -> bool | None:
        return pages.median_of("id", "what", "ratio", [value], **target).met

    assert met(1.0) is None
    assert (met(1.1, at_most=1.0), met(0.9, at_most=1.0)) == (False, True)
    assert (met(1.1, at_least=1.0), met(0.9, at_least=1.0)) == (True, False)


def test_a_section_taken_without_frameworks_leaves_the_versions_of_the_others(pages: ModuleType) -> None:
    before = pages.Kept(machine={}, versions={"numpy": "1", "torch": "2"}, answers={})
    assert pages.still_known(before, {"numpy": "3"}) == {"numpy": "3", "torch": "2"}
    assert pages.still_known(None, {"numpy": "3"}) == {"numpy": "3"}
