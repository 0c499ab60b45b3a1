"""The level core: it fits the catalogue and the clauses, a new one has to be covered, a bad file is said in a line."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from acting import acting_in_required_cases

from encoder_conformance.judging.core.sensitivity import Sensitivity, patch_digest, read_sensitivity
from encoder_conformance.oracle.catalogue import catalogue, seen_in_evaluation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import clauses, load
from tools.core.build import choose
from tools.core.cover import greedy_cover, order_by_gain
from tools.core.criteria import LARGEST, of_deviations, of_text, small_required
from tools.core.sensitivity import CONFORMING_RMS, MARGIN, make_sensitivity
from tools.kill import kills

FINDINGS = Path(__file__).resolve().parents[3] / "docs" / "findings.md"
REBUILD = "python -m tools core build finds a core that covers it"


@cache
def core() -> list[Case]:
    cases = load().cases
    return [cases[name] for name in load().core]


def test_every_case_of_the_core_is_small_and_required() -> None:
    assert all(case.is_required and case.layer.d_model <= LARGEST and case.level == "core" for case in core())
    assert sum(case.level == "core" for case in load().cases.values()) == len(core())


@pytest.mark.release
def test_the_core_cites_every_clause_and_uses_every_value_that_required_cases_do() -> None:
    wanted = set().union(*map(of_text, small_required(load().cases.values())))
    assert not wanted - set().union(*map(of_text, core())), REBUILD
    asked = {clause for case in load().cases.values() if case.is_required for clause in case.clauses}
    assert {clause for case in core() for clause in case.clauses} == asked, REBUILD
    of_additions = {f"E-{number}" for number in range(18, 45)}  # whose cases are recommended at most (V-9)
    assert set(clauses()) - asked == {"E-17", "I-10", *of_additions}, "a clause that no required case cites"


@pytest.mark.release
def test_the_core_sees_every_deviation_that_small_required_cases_see() -> None:
    table = read_sensitivity()
    assert set(table.deviations) == set(catalogue()), REBUILD
    wanted = set().union(*of_deviations(small_required(load().cases.values()), table).values())
    names = {criterion.name for criterion in wanted}
    assert names == acting_in_required_cases() & {*seen_in_evaluation()}
    assert not wanted - set().union(*of_deviations(core(), table).values()), REBUILD


@pytest.mark.release
def test_no_case_of_the_core_is_redundant_but_for_pairs() -> None:
    """Without pairs, which take minutes to measure, the same choice needs no more cases than the core has."""
    found = choose(small_required(load().cases.values()), read_sensitivity(), {})
    assert len(found.cases) <= len(core()) <= 80
    assert all(found.reasons[case] for case in found.cases)


@pytest.mark.release
def test_the_table_says_what_playing_shows() -> None:
    """Of the case that shows most, and of the one that is there for a narrow format."""
    table = read_sensitivity()
    names = [core()[0], next(case for case in core() if "float16" in case.situation.dtypes)]
    for case in names:
        golden = load().cases[case.golden_id]
        dtypes = tuple(case.situation.dtypes)
        again = make_sensitivity(kills(list(catalogue()), [golden], dtypes, 1), catalogue())
        for dtype in dtypes:
            for check in ("output", "stages"):
                assert again.sees(case, dtype, check) == table.sees(case, dtype, check), (case.id, dtype, check)


def test_the_margin_is_200_times_the_largest_conforming_error() -> None:
    """docs/findings.md has the largest error of each implementation over every required case."""
    rows = [line.split("|") for line in FINDINGS.read_text().splitlines() if line.startswith("| `")]
    ours = [float(row[4]) for row in rows if row[1].strip(" `") in ("pytorch", "keras_tf", "jax_pure", "onnx_pytorch")]
    assert len(ours) == 4
    assert max(ours) <= CONFORMING_RMS
    assert MARGIN == 200 * CONFORMING_RMS


def test_greedy_cover_takes_what_adds_most_for_its_cost_and_drops_what_is_redundant() -> None:
    has = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]], dtype=np.bool_)
    assert greedy_cover(has, lambda taken: np.ones(4)) == [3]
    assert sorted(greedy_cover(has, lambda taken: np.array([1.0, 1.0, 1.0, 9.0]))) == [0, 2]
    assert order_by_gain(has[:3], np.ones(4)) == [0, 2, 1]


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    """The specification without its goldens, to be broken."""
    for folder in ("layers", "situations", "deviations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    for file in ("core.yaml", "sensitivity.json"):
        shutil.copy(SPECS / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  - pre-gelu/no-such-thing", "lists pre-gelu/no-such-thing, which is no case"),
        ("  - pre-gelu/empty-batch", "lists pre-gelu/empty-batch, which is recommended"),
        (f"  - {load().core[0]}", "twice"),
        ("level: core", "key level is unknown"),
    ],
)
def test_a_core_that_does_not_fit_is_said_in_one_line(specs: Path, line: str, said: str) -> None:
    with (specs / "core.yaml").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=said) as raised:
        load(specs)
    assert "core.yaml" in raised.value.where


def test_a_new_deviation_is_not_covered_until_the_core_is_built_anew(specs: Path) -> None:
    text = (specs / "deviations" / "norm-eps-1e-3.yaml").read_text()
    (specs / "deviations" / "norm-eps-3.yaml").write_text(
        text.replace("norm-eps-1e-3", "norm-eps-3").replace("1.0e-3", "3.0e-3")
    )
    with pytest.raises(InputError, match="another catalogue; norm-eps-3 differ") as raised:
        read_sensitivity(specs)
    assert "python -m tools core build" in raised.value.hint


def test_nothing_is_known_of_other_numbers_or_of_other_padding() -> None:
    table = read_sensitivity()
    case = load().cases["pre-gelu/padding-right"]
    assert table.sees(case, "float32", "output")
    assert not table.sees(Case(case.layer, case.situation, seed=1), "float32", "output")
    assert not table.sees(load().cases["pre-gelu/padding-huge"], "float32", "output")


def test_a_patch_has_one_digest() -> None:
    digests = {patch_digest(deviation) for deviation in catalogue().values()}
    assert len(digests) == len(catalogue())
    assert isinstance(read_sensitivity(), Sensitivity)


@pytest.mark.release
def test_level_core_asks_the_core_alone(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--level", "core", "--case", "pre-gelu/*", "--dtype", "float32")
    asked = {record["case"] for record in ended.report["records"]}
    assert asked == {case.id for case in core() if case.layer.layer == "pre-gelu"} - {
        case.id for case in core() if "float32" not in case.situation.dtypes
    }


def test_level_core_of_other_cases_is_refused(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--level", "core", "--case", "post-relu-512/*")
    assert ended.status == 2
    assert "--level: core has none of the" in ended.stderr
