"""docs/zoo.md has a line of each published layer, and what its rows say agrees."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.spec.load import published_layers

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.zoo.page")


def test_each_published_layer_was_asked_and_agrees_or_deviates_as_declared(zoo: ModuleType) -> None:
    kept = zoo.read()
    oracle, layers = kept["oracle"]["rows"], kept["layers"]["rows"]
    assert set(oracle) == set(layers) == set(published_layers())
    assert {name for name, row in oracle.items() if row["error"] > 1e-13} == {"vivit"}
    for kind in ("eager", "sdpa"):
        verdicts = {name: row[kind]["verdict"] for name, row in layers.items()}
        assert {name for name, verdict in verdicts.items() if verdict not in ("conforms", "deviates")} <= {"t5gemma"}
        assert all(row[kind]["sigma"] < 2 for row in layers.values() if row[kind]["verdict"] != "refused")


def test_what_deviates_is_declared_and_has_a_script(zoo: ModuleType) -> None:
    for kind in ("eager", "sdpa"):
        _, implementation = find_implementation(f"hf_encoders:attention={kind}")
        declared = {entry.deviation: entry for entry in implementation.deviations}
        for name, row in zoo.read()["layers"]["rows"].items():
            for deviation, seen in row[kind].get("deviates", {}).items():
                entry = declared[deviation]
                assert entry.when is not None
                assert name in entry.when.layer or name == entry.when.layer
                assert seen["dtypes"] == ["float64"]
                assert (ROOT / "docs" / "findings" / str(entry.script)).is_file()


def test_ten_layers_of_other_libraries_pass(zoo: ModuleType) -> None:
    rows = zoo.read()["elsewhere"]["rows"]
    passing = [name for name, row in rows.items() if row["verdict"] == "passes"]
    assert len(passing) >= 10
    assert all(row["verdict"] == "passes" or row["why"] for row in rows.values())


def test_a_layer_without_a_row_is_not_asked(zoo: ModuleType) -> None:
    lines = [line for line in zoo.page({}).splitlines() if line.startswith("| [bert](#each-layer)")]
    assert lines[0].split(" | ")[1:4] == ["not asked"] * 3
