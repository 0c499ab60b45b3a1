"""docs/onnx-files.md is what the kept rows say, and no file there is called right that is not, or wrong that is not."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.onnx_files.page")


def test_no_file_is_called_right_or_wrong_falsely(pages: ModuleType) -> None:
    for name, row in pages.read()["files"].items():
        assert not (row["came"] == "right" and row["differs"]), name
        assert row["differs"] or (row["came"], row["due"]) != ("wrong", "right"), name


def test_every_planted_fault_is_caught_against_its_source(pages: ModuleType) -> None:
    rows = pages.read()["faults"]
    assert [name for name, row in rows.items() if not row["caught"]] == []
    assert sum(row["named"] for row in rows.values()) >= 0.95 * len(rows)


def test_an_export_of_a_published_layer_passes_as_that_layer_or_is_refused_in_a_sentence(pages: ModuleType) -> None:
    rows = json.loads(pages.OF_LAYERS.read_text(encoding="utf-8"))
    assert len({row["name"] for row in rows}) == len(rows)
    assert [row["name"] for row in rows if row["verdict"] == "fails" or not row["sentence"]] == []
    assert len({row["layer"] for row in rows if row["verdict"] == "passes"}) >= 34
