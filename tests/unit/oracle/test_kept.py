"""Expectations that an earlier command kept: the same bits, and only where they are of the very same question."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden import build, kept
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants, load

CASE = "pre-layer-scale/padding-right"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "encoder-conformance" / "expectations"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], tuple[Expected, bool]]:
    """The expectation of a case, and whether it was computed for that."""
    seen: list[str] = []
    compute = build.compute

    def counting(case: Case, constants: Constants, *, whole: bool) -> Expected:
        seen.append(case.id)
        return compute(case, constants, whole=whole)

    monkeypatch.setattr(build, "compute", counting)

    def ask(case: Case) -> tuple[Expected, bool]:
        seen.clear()
        return expectations([case], 1, SILENT)[case.id], bool(seen)

    return ask


def test_a_second_command_takes_the_same_bits(computed: Callable[[Case], tuple[Expected, bool]]) -> None:
    case = load().cases[CASE]
    first, anew = computed(case)
    second, again = computed(case)
    assert (anew, again) == (True, False)
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        same = second.tensors[name]
        assert tensor.shape == same.shape
        for mine, other in zip((tensor.positions, tensor.golden, tensor.condition), _arrays(same), strict=True):
            np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(first.kinked_rows, second.kinked_rows)


def _arrays(tensor: object) -> tuple[object, ...]:
    return tuple(getattr(tensor, name) for name in ("positions", "golden", "condition"))


@pytest.mark.parametrize("change", ["layer", "situation", "seed", "program"])
def test_another_question_is_computed(
    change: str, computed: Callable[[Case], tuple[Expected, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = load().cases[CASE]
    computed(case)
    layer, situation = case.layer, case.situation
    match change:
        case "layer":
            norm = layer.norm.model_copy(update={"epsilon": 1e-3})
            case = Case(layer.model_copy(update={"norm": norm}), situation)
        case "situation":
            case = Case(layer, situation.model_copy(update={"parameter_exponents": {"norm1.gain": 1}}))
        case "seed":
            case = Case(layer, situation, seed=1)
        case "program":
            monkeypatch.setattr(kept, "_computed_with", lambda: ("another",))
    assert computed(case)[1]


@pytest.mark.parametrize("fault", ["cut", "a bit", "empty", "a folder"])
def test_a_file_that_is_not_as_it_was_written_is_computed_again(
    fault: str, computed: Callable[[Case], tuple[Expected, bool]], cache: Path
) -> None:
    case = load().cases[CASE]
    right = computed(case)[0]
    [path] = cache.iterdir()
    content = path.read_bytes()
    match fault:
        case "cut":
            path.write_bytes(content[:-8])
        case "a bit":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "empty":
            path.write_bytes(b"")
        case "a folder":
            path.unlink()
            path.mkdir()
    found, anew = computed(case)
    assert anew
    np.testing.assert_array_equal(found.tensors["output"].golden, right.tensors["output"].golden)


def test_what_was_not_used_for_longest_goes(
    computed: Callable[[Case], tuple[Expected, bool]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = load().cases[CASE]
    computed(case)
    [old] = cache.iterdir()
    monkeypatch.setattr(build, "EXPECTATIONS", replace(kept.EXPECTATIONS, room=old.stat().st_size * 3 // 2))
    computed(Case(case.layer, case.situation, seed=1))
    assert [each for each in cache.iterdir() if each != old], "the new one stays"
    assert not old.exists()


def test_without_a_cache_folder_everything_is_computed(
    computed: Callable[[Case], tuple[Expected, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    case = load().cases[CASE]
    assert [computed(case)[1], computed(case)[1]] == [True, True]
