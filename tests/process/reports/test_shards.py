"""`conform run --shard` and `conform merge`: a plan in parts, and one report of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = ("--case", "pre-gelu/no-mask", "--case", "post-relu/no-mask", "--case", "pre-rms-silu/no-mask")
PLAN = (*CASES, "--dtype", "float64", "--dtype", "float32")


@pytest.fixture
def parts(conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path) -> list[Path]:
    """The two parts of a plan of six layers to build."""
    folder = fake("layer")
    made = []
    for number in (1, 2):
        out = tmp_path / f"part{number}"
        ended = conform("run", "--impl", folder, *PLAN, "--shard", f"{number}/2", "--out", out)
        assert ended.status == 0, ended.stderr
        made.append(out)
    return made


def records(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "report.json").read_text())["records"]
    return found


def keys(run: Path) -> set[tuple[str, ...]]:
    return {(each["implementation"], each["case"], each["dtype"], each["check"]) for each in records(run)}


def test_parts_are_the_plan_and_merge_to_one_report(conform: Callable[..., Any], parts: list[Path]) -> None:
    one, other = map(keys, parts)
    assert len(one) == len(other) == 9
    assert not one & other
    assert not {key[1:3] for key in one} & {key[1:3] for key in other}, "a layer is built in both"
    merged = parts[0].with_name("merged")
    ended = conform("merge", *parts, "--to", merged)
    assert (ended.status, ended.stderr) == (0, "")
    assert "layer: 18 of 18 checks conform" in ended.stdout
    assert keys(merged) == one | other
    report = json.loads((merged / "report.json").read_text())
    assert report["complete"]
    assert [run["shard"] for run in report["merged"]] == [{"number": 1, "of": 2}, {"number": 2, "of": 2}]
    shown = [json.loads((part / "report.json").read_text())["shown"][0] for part in parts]
    together = report["shown"][0]
    assert len(together["not_excluded"]) < min(len(each["not_excluded"]) for each in shown)
    assert set(together["not_cited"]) == set.intersection(*(set(each["not_cited"]) for each in shown))
    assert conform("explain", "--out", merged, "--case", "pre-gelu/no-mask").status == 0
    assert conform("merge", *parts, "--to", merged).status == 2, "a report is overwritten"

    alone = conform("merge", parts[0], "--to", merged.with_name("alone"))
    assert alone.status == 3
    assert "INCOMPLETE: missing part 2/2" in alone.stdout
    late = conform("merge", merged.with_name("alone"), parts[1], "--to", merged.with_name("late"))
    assert late.status == 0


@pytest.mark.release
def test_recorded_seconds_balance_the_parts(
    conform: Callable[..., Any], parts: list[Path], tmp_path: Path, fake: Callable[..., Path]
) -> None:
    merged = tmp_path / "merged"
    conform("merge", *parts, "--to", merged)
    report = json.loads((merged / "report.json").read_text())
    for record in report["records"]:  # one layer takes as long as all others together
        record["seconds"] = 15.0 if (record["case"], record["dtype"]) == ("pre-gelu/no-mask", "float64") else 1.0
    (merged / "report.json").write_text(json.dumps(report))
    out = tmp_path / "long"
    shard = ("--shard", "1/2", "--balanced-by", merged)
    conform("run", "--impl", tmp_path / "layer", *PLAN, *shard, "--out", out)
    assert {key[1:3] for key in keys(out)} == {("pre-gelu/no-mask", "float64")}


def test_contradictions_are_refused(conform: Callable[..., Any], parts: list[Path], tmp_path: Path) -> None:
    report = json.loads((parts[1] / "report.json").read_text())
    layer = report["implementations"][0]
    theirs = records(parts[0])[0]
    contradictions = {
        "in the seed: --seed 3, and there 0": {"environment": report["environment"] | {"seed": 3}},
        "in the versions: layer numpy 1.0, and there numpy": {
            "implementations": [layer | {"versions": {"numpy": "1.0"}}]
        },
        "in what a case specifies: ": {"cases": dict.fromkeys(report["cases"], "0")},
        "fail, and there pass": {"records": [*report["records"], theirs | {"outcome": "fail"}]},
    }
    for problem, changes in contradictions.items():
        wrong = tmp_path / "wrong"
        wrong.mkdir(exist_ok=True)
        (wrong / "report.json").write_text(json.dumps(report | changes))
        ended = conform("merge", parts[0], wrong, "--to", tmp_path / "merged")
        assert ended.status == 2, problem
        assert problem in ended.stderr, ended.stderr
        assert str(wrong) in ended.stderr
        assert not (tmp_path / "merged").exists()


def test_bad_parts(conform: Callable[..., Any], fake: Callable[..., Path]) -> None:
    folder = fake("layer")
    few = ("--case", "pre-gelu/no-mask", "--dtype", "float64")
    assert "nothing is left for it" in conform("run", "--impl", folder, *few, "--shard", "2/2").stderr
    for wrong in ("0/2", "3/2", "a/b", "1"):
        ended = conform("run", "--impl", folder, *few, "--shard", wrong)
        assert (ended.status, "is no part" in ended.stderr) == (2, True), wrong
    assert "there are none" in conform("run", "--impl", folder, *few, "--balanced-by", folder).stderr


def test_a_run_is_resumed(conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path) -> None:
    folder, (first, second, third) = fake("layer"), (tmp_path / name for name in ("first", "second", "third"))
    plan = ("run", "--impl", folder, *CASES[:2], "--dtype", "float64")
    assert conform(*plan, "--out", first).status == 0
    report = json.loads((first / "report.json").read_text())
    interrupted = [{**record, "outcome": "not-run"} if n else record for n, record in enumerate(report["records"])]
    (first / "report.json").write_text(json.dumps(report | {"complete": False, "records": interrupted}))
    (first / "records.jsonl").unlink()

    ended = conform(*plan, "--resume", first, "--out", second)
    assert ended.status == 0, ended.stderr
    assert f"{first}: 1 checks are taken over, 2 are asked" in ended.stderr
    assert ended.stdout.splitlines()[-1] == "layer: 3 of 3 checks conform"
    completed = json.loads((second / "report.json").read_text())
    assert completed["complete"]
    assert len((second / "records.jsonl").read_text().splitlines()) == 2
    assert {record["digest"] for record in completed["records"]} == {record["digest"] for record in report["records"]}

    ended = conform(*plan, "--resume", second, "--out", third)
    assert ended.status == 0
    assert "3 checks are taken over, 0 are asked" in ended.stderr
    assert conform(*plan, "--resume", second, "--out", second).status == 2, "the earlier run is overwritten"

    (folder / "adapter.py").write_text((folder / "adapter.py").read_text() + "\n# changed\n")
    ended = conform(*plan, "--resume", second, "--out", tmp_path / "fourth")
    assert ended.status == 0
    assert "0 checks are taken over, 3 are asked" in ended.stderr
    assert "layer is asked anew" in ended.stderr
