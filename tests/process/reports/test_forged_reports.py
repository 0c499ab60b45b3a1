"""Reports that no run has written: each is refused in one line that has its file and key, by whatever reads reports.

What one command takes, all take.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from encoder_conformance.commands.main import cli
from encoder_conformance.judging.records import Claim, Diagnosis, Measurement, StageEquation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file
from encoder_conformance.reports.run.reading import StoredReport, read_report

DIAGNOSIS = Diagnosis(
    implementation="wrong",
    dtype="float32",
    confidence="closest",
    deviations=("gelu-tanh",),
    sentences=("It is another.",),
    measured=(Measurement(deviation="epsilon", value=1e-3, uncertainty=1e-6),),
    rms=0.5,
    indistinguishable=(("gelu-exact",),),
    first_stage="output",
    cases=("pre-gelu/no-mask",),
    equations=(
        StageEquation(
            stage="norm1", specified="x", found="2 * x", rms=0.5, specified_rms=1e6, cases=("pre-gelu/no-mask",)
        ),
    ),
    observed=(Claim(kind="factor", values={"stage": "output", "factor": 1.01}, sigma=3.0, cases=1),),
)
DROPPED = object()
VALUES = {
    "dropped": DROPPED, "null": None, "negative": -1, "large": 10**400, "infinite": float("inf"), "nan": float("nan"),
    "text": "x", "empty": "", "list": [], "object": {}, "true": True, "long": "a" * 100_000, "path": "../../etc/passwd",
    "escapes": "\x1b[31m\0", "digits": "3", "half": 0.5, "zero": 0, "surrogate": "\ud800", "nulls": [None],
}  # fmt: skip
READERS = {
    "explain": ("--out", "forged"),
    "summarize": ("forged", "--junit", "junit.xml"),
    "compare": ("forged", "earlier"),
    "merge": ("forged", "--to", "merged"),
    "report": ("forged", "--to", "site"),
}
WRONG = """
    def output(self, x, masks, run):
        return super().output(x, masks, run) * 1.01

    def gradients(self, x, masks, run, cotangent):
        raise ValueError("none")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def honest(place: Path, fake: Callable[..., Path], conform: Callable[..., Any]) -> dict[str, Any]:
    """The report of a real run, in which checks failed, with a diagnosis of many keys; beside it is an earlier one."""
    if not (place / "honest").exists():
        words = ("run", "--impl", fake("wrong", WRONG), "--case", "pre-gelu/no-mask", "--dtype", "float32")
        ended = conform(*words, "--out", place / "honest", diagnosed=False)
        assert ended.status == 1, ended.stderr
    found: dict[str, Any] = json.loads((place / "honest" / "report.json").read_text())
    found["diagnoses"] = [DIAGNOSIS.model_dump(mode="json")]
    (place / "earlier").mkdir(exist_ok=True)
    (place / "earlier" / "report.json").write_text(changed(found, ("started",), "2026-01-01T00:00:00+00:00"))
    return found


def changed(report: Any, path: tuple[str | int, ...], to: Any) -> str:
    """The text of a report in which the value at this path is another."""
    if not path:
        return json.dumps(to)
    report = deepcopy(report)
    at = report
    for each in path[:-1]:
        at = at[each]
    if to is DROPPED:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(report)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value in a value; of a list the first and the last."""
    yield at
    keys = value if isinstance(value, dict) else {0, len(value) - 1} if isinstance(value, list) and value else ()
    for key in keys:
        yield from paths(value[key], (*at, key))


def index(report: dict[str, Any], check: str) -> int:
    return next(at for at, each in enumerate(report["records"]) if each["check"] == check)


def forged(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Texts of reports, each with the key that is named, and what is said."""
    infinite, stages, twice = float("inf"), index(report, "stages"), deepcopy(report["records"])
    output = index(report, "output")
    passing = index(report, "stages")
    return [
        (changed(report, ("records", 0, "rms"), infinite), "records[0]: ", "it has the number inf"),
        (
            changed(report, ("records", 0, "rms"), infinite).replace("Infinity", "1e999"),
            "records[0]: ",
            "it has the number inf",
        ),
        (changed(report, ("environment", "seed"), infinite), "", "it has the number inf"),
        (changed(report, ("records", 1, "seconds"), "3"), "records[1].seconds: ", "should be a valid number"),
        (changed(report, ("records", 1, "seconds"), True), "records[1].seconds: ", "should be a valid number"),
        (changed(report, ("records", 1, "check"), "taste"), "records[1].check: ", "should be 'output', "),
        (changed(report, ("records", 1, "outcome"), "splendid"), "records[1].outcome: ", "should be 'pass', "),
        (changed(report, ("records",), {}), "records: ", "it is no list"),
        (changed(report, ("records", 1), None), "records[1]: ", "should be an object"),
        (changed(report, ("implementations", 0, "versions"), []), "implementations[0].versions: ", "object"),
        (changed(report, ("implementations",), []), ": ", "is none of "),
        (changed(report, ("diagnoses", 0, "implementation"), "x"), "diagnoses: ", "'x' is none of its implement"),
        (changed(report, ("diagnoses", 0, "observed", 0, "kind"), "x"), "diagnoses: ", "no claim 'x' has these"),
        (changed(report, ("diagnoses", 0, "observed", 0, "values"), {}), "diagnoses: ", "no claim 'factor' has these"),
        (changed(report, ("records", output, "implementation"), "x"), "x pre-gelu/no-mask", "none of the report's"),
        (changed(report, ("records", stages, "stage"), "norm9"), "stages: stage: ", "'norm9' is none of an encoder"),
        (changed(report, ("records", stages, "tensors", 0, "tensor"), "norm9"), "tensors: ", "'norm9' is no stage"),
        (changed(report, ("records", 0, "rms"), -1.0), "output: rms: ", "-1 is below 0"),
        (changed(report, ("records", 0, "seconds"), -1.0), "output: seconds: ", "-1 is below 0"),
        (changed(report, ("records", output, "tensors", 0, "rms"), None), "tensors: output: ", "it has no rms"),
        (changed(report, ("records", output, "tensors", 0, "sigma"), None), "tensors: output: ", "a part of its worst"),
        (
            changed(report, ("records", passing, "tensors", 0, "conforms"), False),
            "stages: tensors: ",
            "does not conform, and the check passes",
        ),
        (changed(report, ("records", 0, "outcome"), "not-run"), "wrong pre-gelu/no-mask", "this was not run"),
        (changed(report, ("records",), [*twice, twice[0]]), "wrong pre-gelu/no-mask", "two such records"),
        (changed(report, ("shard",), {"number": 0, "of": 0}), "shard.number: ", "greater than or equal to 1"),
        (changed(report, ("shard",), {"number": 3, "of": 2}), "shard: ", "there is no part 3 of 2"),
        (changed(report, ("ended_by",), "budget"), "complete: ", "it is, and was ended by the budget"),
    ]


def test_a_report_that_no_run_has_written_is_refused_with_file_and_key(honest: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    for text, key, said in forged(honest):
        file.write_text(text)
        with pytest.raises(InputError, match="is no report") as refused:
            read_report(file)
        problem = refused.value.problem
        assert (key in problem, said in problem, len(problem.splitlines())) == (True, True, 1), (key, said, problem)
        assert refused.value.where == str(file)


def test_a_report_that_is_replaced_while_it_is_read_is_refused(
    honest: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    """Its records would be those of another run."""
    copy = shutil.copy(place / "honest" / "report.json", tmp_path / "report.json")
    stored = StoredReport(copy)
    assert len([*stored.records()]) == len([*stored.records()]) == len(honest["records"])
    replace_file(copy, copy.read_bytes())
    with pytest.raises(InputError, match="was replaced while it was read"):
        next(stored.records())


def read(place: Path, reader: str) -> str:
    """What a command makes of the forged report: "refused", or its status."""
    for left in ("site", "merged"):
        shutil.rmtree(place / left, ignore_errors=True)
    ended = CliRunner().invoke(cli, [reader, *READERS[reader]], standalone_mode=False)
    if isinstance(ended.exception, InputError):
        assert len(ended.exception.problem) < 1000
        return "refused"
    assert ended.exception is None, (reader, ended.exception)
    return str(ended.return_value or 0)


@pytest.mark.parametrize("reader", READERS)
def test_a_foreign_record_is_refused_by_whatever_reads_reports(
    honest: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Of a case that is not the one that is shown, too."""
    monkeypatch.chdir(place)
    (place / "forged").mkdir(exist_ok=True)
    assert read_of(place, reader, json.dumps(honest)) != "refused"
    last = len(honest["records"]) - 1
    for path, to in ((("records", last, "rms"), "x"), (("records", last, "tensors"), None)):
        assert read_of(place, reader, changed(honest, path, to)) == "refused"


def read_of(place: Path, reader: str, text: str) -> str:
    (place / "forged" / "report.json").write_text(text)
    return read(place, reader)


def problem_of(folder: Path) -> str:
    """Why it is no report; "" if it is one."""
    try:
        read_report(folder)
    except InputError as error:
        return error.problem
    return ""


@pytest.mark.release
def test_no_value_of_a_report_ends_what_reads_it_but_by_a_sentence(
    honest: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFORM_FAULTS=N tries every N-th."""
    monkeypatch.chdir(place)
    (place / "forged").mkdir(exist_ok=True)
    honest["implementations"][0]["folder"] = "nowhere"  # else each site has a script, which takes all of the time
    every = [(path, name) for path in paths(honest) for name in VALUES if path or VALUES[name] is not DROPPED]
    assert len(every) > 1000
    refused, taken, differing = 0, 0, []
    for path, name in every[:: int(os.environ.get("CONFORM_FAULTS", "1"))]:
        text = changed(honest, path, VALUES[name])
        (place / "forged" / "report.json").write_text(text)
        if problem := problem_of(place / "forged"):
            assert len(problem) < 1000
            refused += 1
            continue
        taken += 1
        found = {reader: read_of(place, reader, text) for reader in READERS}
        if "refused" in found.values():
            differing.append((path, name, found))
    print(f"{refused} reports refused, {taken} taken")
    assert refused > 0
    assert taken > 0
    assert not differing, differing[:10]
