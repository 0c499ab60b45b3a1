"""The command itself: what it prints, what it refuses and how it says so, and its exit status."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load, published_layers

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")


def test_help_has_an_example(conform: Callable) -> None:
    for command in (
        [],
        ["run"],
        ["new"],
        ["smoke"],
        ["explain"],
        ["report"],
        ["reproduce"],
        ["list"],
        ["trace"],
        ["memory"],
        ["profile"],
    ):
        ended = conform(*command, "--help")
        assert ended.status == 0
        assert "Usage: conform" in ended.stdout
        assert "conform " + " ".join(command) in ended.stdout.split("Usage:")[1]


def test_the_matrix_and_the_report_agree(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", "post-relu/*", "--case", "pre-gelu/no-mask")
    assert ended.status == 0, ended.stdout + ended.stderr
    report = ended.report
    assert (report["format"], report["version"], report["complete"]) == ("encoder-conformance report", 3, True)
    named = [case for name, case in load().cases.items() if name.startswith("post-relu/") or name == "pre-gelu/no-mask"]
    asked = [case for case in named for dtype in case.situation.dtypes for check in case.situation.checks]
    assert len(report["records"]) == len(asked)
    not_asked = [record["case"] for record in report["records"] if record["outcome"] == "unsupported"]
    assert all(case.endswith("-16-bit") for case in not_asked), "it has no dtype of 16 bits"
    assert {record["outcome"] for record in report["records"]} == {"pass", "unsupported"}
    count = len(asked) - len(not_asked)
    assert f"{count} of {count} checks conform" in ended.stdout
    assert report["implementations"][0]["versions"]["numpy"]
    assert report["environment"]["cpus"] == os.cpu_count()
    for record in (record for record in report["records"] if record["tensors"]):
        assert record["rms"] == max(tensor["rms"] for tensor in record["tensors"])
        assert record["max"] == max(tensor["max"] for tensor in record["tensors"])


def test_explain_shows_the_stage_and_a_command_that_repeats_it(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        shown = super().stages(x, masks, run)
        return {name: value + (name in ("norm2", "output")) for name, value in shown.items()}
    """
    folder = fake("shifted", lie)
    ran = conform("run", "--impl", folder, *CASES, diagnosed=False)
    assert ran.status == 1
    ended = conform("explain")
    assert ended.status == 0
    assert "first wrong stage: norm2" in ended.stdout
    [repeat] = [line for line in ended.stdout.splitlines() if line.startswith("Repeat: conform run ")]
    assert str(folder) in repeat
    again = conform(*repeat.removeprefix("Repeat: conform ").split(), diagnosed=False)
    assert again.status == 1
    assert again.outcomes() == ran.outcomes() == ["pass", "fail", "pass"]
    records = json.loads(conform("explain", "--json").stdout)
    assert [record["check"] for record in records] == ["output", "stages", "gradients"]


def test_explain_without_a_failure(conform: Callable, honest: Path) -> None:
    conform("run", "--impl", honest, *CASES)
    assert "Nothing failed" in conform("explain").stdout
    shown = conform("explain", "--case", "pre-gelu/no-mask")
    assert "attention_weights" in shown.stdout
    unknown = conform("explain", "--case", "pre-gelu/no-musk")
    assert unknown.status == 2
    assert "did you mean pre-gelu/no-mask" in unknown.stderr + str(unknown) or "not in the report" in unknown.stderr


def test_explain_of_no_report(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"format": "something else"}')
    for out, said in ((tmp_path / "nowhere", "conform run writes it"), (tmp_path, "is no report of this version")):
        ended = conform("explain", "--out", out)
        assert ended.status == 2
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--impl", "pytroch"], "did you mean pytorch"),
        (["--impl", "{honest}", "--case", "pre-gelu/no-musk"], "did you mean pre-gelu/no-mask"),
        (["--impl", "{honest}", "--case", "nothing*"], "matches no case"),
        (["--impl", "{honest}", "--dtype", "float31"], "'float31' is not one of 'float64', 'float32'"),
        (["--impl", "{honest}", "--jobs", "0"], "--jobs"),
        (["--impl", "{honest}", "--level", "recomended"], "--level"),
        (["--impl", "{honest}", "--layer", "nowhere.yaml"], "nowhere.yaml"),
        (["--impl", "{honest}", "--python", "honest"], "is not NAME=PATH"),
        (["--impl", "{honest}", "--python", "honset=/usr/bin/python3"], "did you mean honest"),
        (["--impl", "{honest}", "--python", "honest=/nowhere/python"], "does not run"),
        (["--impl", "{honest}", "--device", "cuda"], "runs on cpu, not on cuda"),
        (["--impl", "{tmp}"], "holds no impl.yaml"),
        (["--impl", "{honest}", "--impl", "{honest_again}"], "two implementations are called honest"),
        (["--impl", "{honest}", "--out", "{file}"], "--out"),
        (["--sigma", "3"], "No such option"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(
    conform: Callable, honest: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "file").write_text("")
    again = tmp_path / "again" / "honest"
    again.mkdir(parents=True)
    for name in ("impl.yaml", "adapter.py"):
        (again / name).write_text((honest / name).read_text())
    places = {"honest": honest, "tmp": tmp_path, "file": tmp_path / "file", "honest_again": again}
    ended = conform("run", *(argument.format(**places) for argument in arguments))
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (ended.out / "report.json").exists()


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"requires": "[no_such_framework]"}, "no_such_framework not importable"),
        ({"requires": "[no_such_framework]"}, "pip install 'numpy'"),
        ({"command": "[no-such-program-anywhere]"}, "its command 'no-such-program-anywhere' is not found"),
        ({"command": "[no-such-program-anywhere]", "install": "make -C {folder}"}, "anywhere, then: make -C "),
        ({"command": "[sh, adapter.sh]", "requires": "[made/library]"}, "made/library not in "),
        ({"command": "[sh, adapter.sh]", "requires": "[made]", "install": "make -C {folder}"}, "make -C "),
        ({"command": "[python, adaptor.py]"}, "names the adapter 'adaptor.py', which is not there"),
        ({"dtypes": "[float8]"}, "capabilities.dtypes"),
        ({"stages": "[norm1, norm3]"}, "norm3"),
        ({"homepage": "example.org"}, "homepage"),
        ({"timeouts": "{start: 1, build: 1}"}, "key timeouts.run is missing"),
        ({"unsupported": "[{when: {}, reason: because it cannot, link: 'https://example.org'}]"}, "names no key"),
        (
            {"unsupported": "[{when: {situation: []}, reason: because it cannot}]"},
            "unsupported.0.when.situation.several",
        ),
        ({"unsupported": "[{when: {activation: swish}, reason: because it cannot}]"}, "'gelu', 'gelu_tanh', 'silu' or"),
        ({"unsupported": "[{when: {dtype: float32}, link: 'https://example.org'}]"}, "unsupported.0.reason is missing"),
    ],
)
def test_a_bad_manifest_is_named_and_exits_with_2(
    conform: Callable, fake: Callable, manifest: dict[str, str], said: str
) -> None:
    ended = conform("run", "--impl", fake("broken", **manifest), *CASES)
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "broken" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_manifest_whose_name_is_not_its_folder_s(conform: Callable, fake: Callable) -> None:
    folder = fake("first")
    ended = conform("run", "--impl", folder.rename(folder.with_name("second")), *CASES)
    assert ended.status == 2
    assert "the name 'first' is not the folder's" in ended.stderr


LAYER = (
    (SPECS / "layers" / "pre-gelu.yaml")
    .read_text()
    .replace("layer: pre-gelu", "layer: mine")
    .replace("d_model: 24", "d_model: 18")
)


def test_a_layer_of_the_users_own(conform: Callable, honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(LAYER)
    ended = conform("run", "--impl", honest, "--layer", path, "--case", "*/padding-right")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert {record["case"] for record in ended.report["records"]} == {"mine/padding-right"}


def test_a_users_layer_that_is_wrong(conform: Callable, honest: Path, tmp_path: Path) -> None:
    for name, text, said in (
        ("mine", LAYER.replace("num_heads: 3", "num_heads: 4"), "num_heads = 4 contradicts d_model = 18"),
        ("pre-gelu", LAYER.replace("layer: mine", "layer: pre-gelu"), "layer 'pre-gelu' exists already"),
        ("other", LAYER, "the id 'mine' is not the file's name"),
    ):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        ended = conform("run", "--impl", honest, "--layer", path)
        assert ended.status == 2
        assert said in ended.stderr
        assert path.name in ended.stderr


def test_ctrl_c_leaves_an_incomplete_report(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        os.kill(harness(), signal.SIGINT)
        while True:
            signal.pause()
    """
    ended = conform("run", "--impl", fake("interrupter", lie), *CASES)
    assert ended.status == 3
    assert (
        f"interrupted; what was judged until then is in {ended.out / 'report.json'}, marked incomplete" in ended.stderr
    )
    assert "Traceback" not in ended.stderr
    assert ended.report["complete"] is False
    assert ended.outcomes() == ["pass", "not-run", "not-run"]


def test_ctrl_c_while_goldens_are_computed_leaves_a_report_that_says_so(honest: Path, tmp_path: Path) -> None:
    """A terminal interrupts the whole group: the command, and the processes that compute for it."""
    out, program = tmp_path / "report", Path(sys.executable).with_name("conform")
    run = subprocess.Popen(
        [program, "run", "--impl", honest, "--seed", "1", "--out", out, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        started = time.monotonic()
        while not (out / "report.json").exists() and time.monotonic() < started + 60:
            time.sleep(0.05)
        time.sleep(2)
        os.killpg(run.pid, signal.SIGINT)
        stdout, stderr = run.communicate(timeout=60)
    finally:  # a run that does not end would go on beside every other test
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 3, stdout + stderr
    assert "goldens were computed, and they are not kept; nothing was judged" in stderr
    assert "is in the report" not in stderr
    assert "Traceback" not in stderr
    report = json.loads((out / "report.json").read_text())
    assert (report["complete"], report["ended_by"]) == (False, "interrupt")
    assert {record["outcome"] for record in report["records"]} == {"not-run"}


def test_ctrl_c_where_there_is_no_report_speaks_of_none(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        os.kill(harness(), signal.SIGINT)
        while True:
            signal.pause()
    """
    ended = conform("trace", "--impl", fake("interrupter", lie), "--layer", "pre-gelu", "--batch", "1")
    assert ended.status == 3
    assert ended.stderr.strip() == "conform: interrupted"


def test_a_run_that_is_killed_leaves_an_incomplete_report(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        os.kill(harness(), signal.SIGKILL)
        return super().output(x, masks, run)
    """
    ended = conform("run", "--impl", fake("murderer", lie), *CASES)
    assert ended.status == -signal.SIGKILL
    assert ended.report["complete"] is False
    assert ended.outcomes() == ["not-run", "not-run", "not-run"]


def test_a_run_that_is_killed_leaves_what_was_judged(conform: Callable, fake: Callable) -> None:
    lie = """
    def gradients(self, x, masks, run, cotangent):
        from pathlib import Path
        records = next(Path.cwd().parent.glob("report/records.jsonl"))
        while records.read_text().count(chr(10)) < 2:  # both answers before it are judged at once
            time.sleep(0.01)
        os.kill(harness(), signal.SIGKILL)

    def output(self, x, masks, run):
        return super().output(x, masks, run) + 1
    """
    ended = conform("run", "--impl", fake("murderer", lie), *CASES)
    assert ended.status == -signal.SIGKILL
    read = read_report(ended.out)
    assert read.complete is False
    assert [record.outcome for record in read.records] == ["fail", "pass", "not-run"]
    explained = conform("explain")
    assert explained.status == 0
    assert "output: fail" in explained.stdout
    assert "INCOMPLETE" in explained.stdout


@pytest.mark.parametrize("what", ["impls", "layers", "situations", "cases", "clauses", "deviations", "coverage"])
def test_list_on_the_terminal_and_as_json(conform: Callable, what: str) -> None:
    rows = json.loads(conform("list", what, "--json").stdout)
    shown = conform("list", what).stdout
    assert rows
    for row in rows:
        assert str(next(iter(row.values()))) in shown


def test_every_layer_is_listed_with_all_of_its_keys(conform: Callable) -> None:
    """As YAML, in 80 columns, of which each part is a layer file without a base; and as JSON."""
    shown = conform("list", "layers", "--full").stdout
    assert max(map(len, shown.splitlines())) <= 80
    layers = {**load().layers, **published_layers()}
    for listed in ([*yaml.safe_load_all(shown)], json.loads(conform("list", "layers", "--full", "--json").stdout)):
        assert [keys["layer"] for keys in listed] == [*layers]
        for keys in listed:
            assert Layer.model_validate_json(json.dumps(keys)) == layers[keys["layer"]]
    ended = conform("list", "cases", "--full")
    assert (ended.status, ended.stdout) == (2, "")
    assert "--full: is for layers alone" in ended.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    conform = Path(sys.executable).with_name("conform")
    piped = subprocess.Popen([conform, "list", "clauses"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert piped.stdout
    assert piped.stderr
    piped.stdout.close()
    assert piped.stderr.read() == b""
    assert piped.wait() == 0
    piped.stderr.close()


def test_wrong_words(conform: Callable, maintain: Callable) -> None:
    for ended in (
        conform("lst"),
        conform("list", "impl"),
        maintain("golden", "rebuild"),
        maintain("golden", "verify", "--case", "nothing"),
    ):
        assert ended.status == 2
        assert ended.stderr
        assert "Traceback" not in ended.stderr
