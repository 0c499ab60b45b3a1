"""Mutants of an encoder's own code: as it is it conforms, and one changed node is seen."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.mutants.code")


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.mutants.code_of_jax").JAX


def outcome(case_id: str, answers: dict) -> Outcome:
    case = load().cases[case_id]
    expected = read_golden(case, read_golden_manifest(), constants())
    return judge("stages", stages(case.layer), answers, expected, FORMATS["float32"]).outcome


def test_the_code_as_it_is_conforms_over_numpy(code: ModuleType, jax: Any) -> None:
    unchanged = jax.unchanged()
    for layer in code.LAYERS:
        case = load().cases[f"{layer}/padding-right"]
        assert outcome(case.id, unchanged(case)) is Outcome.PASS


@pytest.mark.release
def test_mutants_are_drawn_again_from_the_same_seed_and_some_are_seen(code: ModuleType, jax: Any) -> None:
    drawn = list(code.code_mutants(jax, 6, 3))
    assert list(map(str, drawn)) == list(map(str, code.code_mutants(jax, 6, 3)))
    seen = {
        outcome(f"{each.layer}/padding-right", each.answers(load().cases[f"{each.layer}/padding-right"]))
        for each in drawn
    }
    assert Outcome.FAIL in seen
