"""Frozen goldens: whole, the oracle's own, and any change to them or to what they were made from is told."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from catalogue import of_every

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute, compute_all
from encoder_conformance.oracle.golden.store import (
    GOLDEN,
    Manifest,
    case_digest,
    check_ids,
    golden_path,
    read_golden,
    read_golden_manifest,
    write_golden,
    write_golden_manifest,
)
from encoder_conformance.oracle.golden.thinning import compared_tensors
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from tools.golden.verify import disagreement, still_frozen

CASES = load().with_golden
FULL = {name: case for name, case in CASES.items() if case.situation.batch}
SMALL = CASES["post-relu/single-position"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The manifest and the small case's golden."""
    folder = tmp_path / "golden"
    golden_path(SMALL.id, folder).parent.mkdir(parents=True)
    shutil.copy(golden_path(SMALL.id), golden_path(SMALL.id, folder))
    shutil.copy(GOLDEN / "manifest.json", folder / "manifest.json")
    return folder


@pytest.fixture(scope="module")
def built() -> Expected:
    return compute(SMALL, constants())


@pytest.fixture(scope="module")
def frozen() -> Expected:
    return read_golden(SMALL, read_golden_manifest(), constants())


def refused(folder: Path, case: Case = SMALL) -> InputError:
    with pytest.raises(InputError) as caught:
        read_golden(case, read_golden_manifest(folder), constants(), folder)
    assert caught.value.hint
    return caught.value


@pytest.mark.release
@of_every(FULL.values())
def test_every_golden_is_whole_and_finite(case: Case) -> None:
    expected = read_golden(case, read_golden_manifest(), constants())
    needed = compared_tensors(case)
    assert list(expected.tensors) == list(needed)
    for name, tensor in expected.tensors.items():
        shape, compared = needed[name]
        assert tensor.shape == shape, name
        assert tensor.golden.dtype == tensor.condition.dtype == np.float64, name
        whole = name == "output" and compared.size <= 1024
        kept = int(compared.sum()) if whole else min(128, int(compared.sum()))
        assert tensor.golden.shape == tensor.condition.shape == tensor.positions.shape == (kept,), name
        assert kept > 0, name
        assert np.all(np.diff(tensor.positions) > 0), name
        assert compared.reshape(-1)[tensor.positions].all(), name
        specified = ~np.isnan(tensor.golden) if case.layer.attention.fully_masked_row == "nan" else slice(None)
        assert np.isfinite(tensor.golden[specified]).all(), name
        assert np.isfinite(tensor.condition[specified]).all(), name
        assert np.nanmin(tensor.condition) >= 0, name
        copied = name == "embedded" and case.layer.embedding and case.layer.embedding.positions == "none"
        assert copied or np.nanmax(tensor.condition) > 0, name
    assert expected.kinked_rows.shape[1:] == (2,)
    assert all(case.valid()[tuple(row)] for row in expected.kinked_rows)


@pytest.mark.release
@of_every(FULL.values())
def test_goldens_are_not_trivial(case: Case) -> None:
    """The gradient by the key bias is 0 in exact arithmetic; by query, key and a bias by position too, where softmax is
    constant."""
    tensors = read_golden(case, read_golden_manifest(), constants()).tensors
    assert np.nanstd(tensors["output"].golden) > 0.05
    constant = case.situation.keys == 1
    of_queries = ("gradient.x",) if case.layer.takes_memory else ()  # values alone come of the other sequence
    of_scores = ("gradient.attention.q", "gradient.attention.k", "gradient.attention.position_bias")
    silent = (*of_scores, *of_queries) if constant else ("gradient.attention.key.bias",)
    for name, tensor in tensors.items():
        assert re.sub(r"layers\.\d+\.", "", name).startswith(silent) or np.nanmax(np.abs(tensor.golden)) > 1e-9, name


def test_a_golden_is_read_as_it_was_whatever_lies_in_memory_in_which_order(tmp_path: Path, built: Expected) -> None:
    """The pairs of two kinked rows came back as (items, positions): np.argwhere's answer lies column by column."""
    rows = np.argwhere(np.array([[False, True], [False, True], [True, False]]))
    assert not rows.flags.c_contiguous
    entry = write_golden(SMALL, Expected(built.tensors, rows), constants(), tmp_path)
    again = read_golden(SMALL, Manifest(cases={SMALL.id: entry}), constants(), tmp_path)
    assert again.kinked_rows.tolist() == [[0, 1], [1, 1], [2, 0]]
    assert not disagreement(again, Expected(built.tensors, rows))


def test_no_two_cases_have_the_same_output() -> None:
    manifest = read_golden_manifest()
    cases = [case for case in FULL.values() if case.layer.family != "dropout"]  # in eval, as if it had none
    outputs = {read_golden(case, manifest, constants()).tensors["output"].golden.tobytes() for case in cases}
    assert len(outputs) == len(cases)


def test_goldens_and_cases_match_and_nothing_else_lies_there() -> None:
    manifest = read_golden_manifest()
    check_ids(CASES, manifest)
    assert list(manifest.cases) == sorted(CASES)
    files = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
    assert files == {"manifest.json", *(f"{name}.safetensors" for name in CASES)}


def test_goldens_stay_under_25_megabytes() -> None:
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 25_000_000


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 1.0])
def test_a_flipped_bit_is_found_and_the_file_named(copy: Path, at: float) -> None:
    path = golden_path(SMALL.id, copy)
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    assert str(path) in str(refused(copy))


@pytest.mark.release
@of_every(CASES.values())
def test_a_flipped_bit_is_found_in_every_golden(case: Case) -> None:
    with TemporaryDirectory() as folder:
        path = golden_path(case.id, Path(folder))
        path.parent.mkdir(parents=True)
        data = bytearray(golden_path(case.id).read_bytes())
        data[-3] ^= 0x40
        path.write_bytes(data)
        with pytest.raises(InputError, match="sum in manifest") as caught:
            read_golden(case, read_golden_manifest(), constants(), Path(folder))
    assert case.id in caught.value.where


def test_a_golden_cut_short_or_missing_is_named(copy: Path) -> None:
    path = golden_path(SMALL.id, copy)
    path.write_bytes(path.read_bytes()[:-8])
    assert "sum in manifest" in str(refused(copy))
    path.unlink()
    assert str(path) in str(refused(copy))


def test_a_golden_of_another_case_in_its_place_is_found(copy: Path) -> None:
    shutil.copy(golden_path("post-relu/single-item"), golden_path(SMALL.id, copy))
    assert str(golden_path(SMALL.id, copy)) in str(refused(copy))


def changed(case: Case, **update: object) -> Case:
    return Case(case.layer, case.situation.model_copy(update=update))


@pytest.mark.parametrize(
    "case",
    [
        changed(SMALL, parameter_exponents={"attention.query.weight": 1}),
        changed(SMALL, input=SMALL.situation.input.model_copy(update={"exponent": -6})),
        Case(SMALL.layer.model_copy(update={"d_model": 40}), SMALL.situation),
        Case(
            SMALL.layer.model_copy(update={"norm": SMALL.layer.norm.model_copy(update={"epsilon": 1e-3})}),
            SMALL.situation,
        ),
    ],
    ids=["parameter exponent", "input exponent", "size", "epsilon"],
)
def test_a_case_that_changes_makes_its_golden_stale(copy: Path, case: Case) -> None:
    error = refused(copy, case)
    assert f"{SMALL.id}.safetensors" in error.where
    assert "post-relu.yaml" in error.problem
    assert "single-position.yaml" in error.problem
    assert f"python -m tools golden build --case '{SMALL.id}'" in error.hint


def test_words_and_limits_may_change_without_a_rebuild(copy: Path) -> None:
    words = {"title": "Another sentence", "clauses": ("L-1",)}
    case = Case(
        SMALL.layer.model_copy(update=words),
        SMALL.situation.model_copy(update={**words, "level": "optional", "families": ("small",)}),
    )
    read_golden(case, read_golden_manifest(copy), constants(), copy)
    looser = constants().model_copy(update={"rms_limit": 3.0, "max_limit": 20.0})
    read_golden(case, read_golden_manifest(copy), looser, copy)


@pytest.mark.parametrize("key", ["condition_runs", "whole_output_up_to", "sampled_positions"])
def test_how_goldens_are_made_is_part_of_what_they_are_made_from(key: str) -> None:
    other = constants().model_copy(update={key: getattr(constants(), key) + 1})
    assert case_digest(SMALL, other) != case_digest(SMALL, constants())


def test_every_case_has_a_digest_of_its_own() -> None:
    assert len({case_digest(case, constants()) for case in CASES.values()}) == len(CASES)


def test_a_renamed_case_is_told_both_ways() -> None:
    manifest = read_golden_manifest()
    renamed = {("post-relu/one-position" if name == SMALL.id else name): None for name in CASES}
    with pytest.raises(InputError, match="post-relu/one-position has no golden") as caught:
        check_ids(renamed, manifest)
    assert "name it back" in caught.value.hint
    assert SMALL.id in caught.value.hint
    assert "python -m tools golden build" in caught.value.hint
    assert "manifest.json" in caught.value.where
    gone = [name for name in CASES if name != SMALL.id]
    with pytest.raises(InputError, match=f"{SMALL.id} belongs to no case") as caught:
        check_ids(gone, manifest)
    assert "--prune" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cases": 3}', '{"cases": {"a/b": {"sha256": "0"}}}', '{"cases": {}, "more": 1}']
)
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="is no manifest") as caught:
        read_golden_manifest(tmp_path)
    assert "manifest.json" in caught.value.where
    assert "version control" in caught.value.hint


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not there") as caught:
        read_golden_manifest(tmp_path)
    assert "python -m tools golden build" in caught.value.hint


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    entries = read_golden_manifest().cases
    write_golden_manifest(dict(reversed(entries.items())), tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == (GOLDEN / "manifest.json").read_bytes()
    assert read_golden_manifest(tmp_path) == Manifest(cases=entries)


def test_building_twice_gives_the_same_bytes(tmp_path: Path, built: Expected) -> None:
    folders = tmp_path / "first", tmp_path / "second"
    entries = [
        write_golden(SMALL, expected, constants(), folder)
        for folder, expected in zip(folders, (built, compute(SMALL, constants())), strict=True)
    ]
    assert entries[0] == entries[1]
    first, second = (golden_path(SMALL.id, folder).read_bytes() for folder in folders)
    assert first == second
    assert [path.name for path in folders[0].rglob("*") if path.is_file()] == ["single-position.safetensors"]


def test_a_rebuild_keeps_what_still_holds_byte_for_byte(copy: Path, frozen: Expected) -> None:
    entry = read_golden_manifest(copy).cases[SMALL.id]
    last_bit = frozen.tensors["output"].golden * (1 + 2.0**-52)
    elsewhere = with_tensor(frozen, "output", golden=last_bit)  # as another machine's BLAS has it
    renamed = entry.model_copy(update={"case_sha256": "0" * 64})  # as a change of the layer language leaves it
    assert still_frozen(SMALL, renamed, elsewhere, constants(), copy) == entry
    changed = with_tensor(frozen, "output", golden=frozen.tensors["output"].golden + 1e-6)
    assert still_frozen(SMALL, entry, changed, constants(), copy) is None
    golden_path(SMALL.id, copy).write_bytes(b"something else")
    assert still_frozen(SMALL, entry, elsewhere, constants(), copy) is None


def test_what_was_written_is_read_again(tmp_path: Path, built: Expected) -> None:
    manifest = Manifest(cases={SMALL.id: write_golden(SMALL, built, constants(), tmp_path)})
    read = read_golden(SMALL, manifest, constants(), tmp_path)
    assert read.kinked_rows.tolist() == built.kinked_rows.tolist()
    for name, tensor in built.tensors.items():
        for field in ("positions", "golden", "condition"):
            assert np.array_equal(getattr(read.tensors[name], field), getattr(tensor, field)), (name, field)


def test_todays_oracle_says_what_is_frozen(built: Expected, frozen: Expected) -> None:
    """Bit for bit but for the last place, which a C library's `expl` may round otherwise."""
    assert disagreement(frozen, built) == ""
    for name, tensor in frozen.tensors.items():
        assert np.allclose(built.tensors[name].golden, tensor.golden, rtol=2.0**-52, atol=1e-18), name
        assert np.allclose(built.tensors[name].condition, tensor.condition, rtol=1e-5, atol=0), name


@pytest.mark.release
def test_processes_side_by_side_compute_the_same(built: Expected) -> None:
    [(case, expected)] = compute_all([SMALL], constants(), 2)
    assert case is SMALL
    assert disagreement(built, expected) == ""


def with_tensor(expected: Expected, name: str, **values: Any) -> Expected:
    return Expected({**expected.tensors, name: replace(expected.tensors[name], **values)}, expected.kinked_rows)


@pytest.mark.parametrize("name", ["norm1", "attention_output", "output", "gradient.x", "gradient.norm2.gain"])
def test_a_changed_golden_is_told(frozen: Expected, name: str) -> None:
    golden = frozen.tensors[name].golden.copy()
    golden[np.abs(golden).argmax()] *= 1 + 1e-9
    told = disagreement(frozen, with_tensor(frozen, name, golden=golden))
    assert told.startswith(f"{name} is ")
    assert disagreement(with_tensor(frozen, name, golden=golden), frozen).startswith(f"{name} is ")


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_changed_condition_is_told(frozen: Expected, factor: float) -> None:
    condition = frozen.tensors["query"].condition.copy()
    condition[1] *= factor
    told = disagreement(frozen, with_tensor(frozen, "query", condition=condition))
    assert told == "query's condition has changed"


def test_changed_kinked_rows_are_told(frozen: Expected) -> None:
    today = Expected(frozen.tensors, np.array([[0, 0]]))
    assert "kinked rows are [[0, 0]]" in disagreement(frozen, today)


def test_the_first_tensor_that_disagrees_is_the_one_told(frozen: Expected) -> None:
    today = frozen
    for name in ("ffn_output", "query", "norm2"):
        today = with_tensor(today, name, golden=frozen.tensors[name].golden + 1)
    assert disagreement(frozen, today).startswith("query is ")
