"""Limits: of memory, of logs, of files that people write, and of losses in a row."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from encoder_conformance.commands.main import cli
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.yaml_file import read_yaml
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.supervisor import Losses

CASES = ("--case", "pre-gelu/no-mask", "--case", "pre-gelu/padding-right", "--dtype", "float32", "--jobs", "1")
MiB = 1 << 20


HOARDERS = {
    "by_numpy": "hoard = np.ones(2**26)",
    "by_a_child": "if not os.fork(): hoard = np.ones(2**26); signal.pause()",
    "by_python": "hoard = bytes([1]) * 2**29",
}


@pytest.mark.linux
def test_a_worker_that_holds_more_than_it_may_is_ended_and_costs_one_check(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        if masks.joined() is None:
            {where}
            signal.pause()
        return super().stages(x, masks, run)
    """
    folders = [fake(name, lie.format(where=where)) for name, where in HOARDERS.items()]
    ended = conform("run", *(word for folder in folders for word in ("--impl", folder)), *CASES, "--memory", "400MiB")
    for name in HOARDERS:
        assert ended.outcomes(implementation=name) == ["pass", "crash", "pass", "pass", "pass", "pass"], name
    assert ended.messages().count("more than its limit (--memory), and was ended") == len(HOARDERS)
    kinds = [record["kind"] for record in ended.report["records"] if record["outcome"] == "crash"]
    assert kinds == ["memory"] * len(HOARDERS)
    assert ended.report["environment"]["memory_per_worker"] == 400 * MiB


@pytest.mark.linux
def test_the_peak_of_a_worker_is_in_the_report(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        np.ones(2**24)
        return super().output(x, masks, run)
    """
    small, large = fake("small"), fake("large", lie)
    ended = conform("run", "--impl", small, "--impl", large, *CASES)
    peaks = {judged["name"]: judged["peak_memory"] for judged in ended.report["implementations"]}
    assert peaks["large"] - peaks["small"] > 100 * MiB
    assert 10 * MiB < peaks["small"] < 1000 * MiB


@pytest.mark.parametrize("size", ["", "4", "many", "-4GiB", "4gib", "1e9", "0MiB", "nanGiB", "99999999TiB"])
def test_a_size_that_is_none_is_refused(conform: Callable, size: str) -> None:
    ended = conform("run", "--memory", size)
    assert ended.status == 2
    assert "is no size" in ended.stderr


def test_a_flood_on_standard_error_is_cut_on_disk_and_its_end_is_kept(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        for _ in range(64):
            os.write(2, b"noise " * (2**20 // 6))
        os.write(2, b"\\nthe last words\\n")
        os._exit(7)
    """
    ended = conform("run", "--impl", fake("flood", lie), *CASES)
    assert ended.outcomes("output") == ["crash", "crash"]
    assert ended.messages().count("status 7; its last words: the last words") == 2
    log = ended.out / "logs" / "flood.log"
    assert log.stat().st_size < 9 * MiB
    assert "bytes of standard error are left out" in log.read_text()


LOSSES = {"exit": "os._exit(3)", "signal": "os.kill(os.getpid(), 11)", "hang": "signal.pause()"}


@pytest.mark.release
@pytest.mark.parametrize(
    "losses", [("exit", "hang"), pytest.param(("signal",), marks=pytest.mark.release)], ids=" ".join
)
def test_a_worker_that_is_lost_at_each_check_is_given_up_after_three(
    conform: Callable, fake: Callable, losses: tuple[str, ...]
) -> None:
    words = list[Path | str]()
    for loss in losses:
        lie = f"def run_check(self, *asked):\n    {LOSSES[loss]}"
        words += ["--impl", fake(loss, lie, timeouts="{start: 60, build: 60, run: 0.3}")]
    ended = conform("run", *words, *CASES)
    for loss in losses:
        lost = "timeout" if loss == "hang" else "crash"
        assert sorted(ended.outcomes(implementation=loss)) == sorted([lost] * 3 + ["not-run"] * 3), loss
        assert f"{loss}, 3 not run: given up: 3 checks in a row have lost their worker; the last: " in ended.stdout
    records = ended.report["records"]
    assert {record["kind"] for record in records if record["outcome"] == "not-run"} == {"given-up"}
    assert ended.status == 1


def test_losses_that_are_not_in_a_row_give_nothing_up() -> None:
    losses, crash, hang = Losses(), Failure(Outcome.CRASH, "crashed"), Failure(Outcome.TIMEOUT, "hung")
    for failure in (crash, hang, None, crash, hang, None, hang, crash):
        losses.lost(failure) if failure else losses.answered()
        assert losses.given_up is None
    losses.lost(Failure(Outcome.ERROR, "broke the protocol"))
    assert losses.given_up is None
    losses.lost(hang)
    assert losses.given_up
    losses.answered()
    assert "the last: hung" in losses.given_up.message


def test_smoke_ends_at_the_first_hang(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        with open("hangs", "a") as hangs:
            hangs.write(".")
        signal.pause()
    """
    folder = fake("sleeper", lie, timeouts="{start: 60, build: 60, run: 0.3}")
    ended = conform("smoke", folder)
    assert ended.status == 1
    assert "no answer to run in 0.3 s" in ended.stdout
    assert (folder / "hangs").read_text() == "."
    assert "Traceback" not in ended.stderr


YAML = {
    "billion-laughs": ("a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9)), "every alias written out"),
    "merged-laughs": ("b0: &b0 {x: 1}\n" + "".join(
        f"b{n + 1}: &b{n + 1} {{<<: [{', '.join([f'*b{n}'] * 9)}]}}\n" for n in range(9)), "every alias written out"),
    "in-itself": ("a: &a [*a]\n", "circular"),
    "in-itself-as-a-key": ("? &a [*a]\n: 1\n", "circular"),
    "too-long": ("# " + "x" * 2**20, "has more than 1048576 bytes"),
    "deep": ("a: " + "[\n  " * 2500 + "]" * 2500, "is not YAML"),
}  # fmt: skip


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_grows_is_refused_before_it_does(tmp_path: Path, name: str) -> None:
    text, said = YAML[name]
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_yaml(tmp_path / "file.yaml")


def test_yaml_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="is no regular file"):
            read_yaml(path)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("030", "030"), ("-030", "-030"), ("0x18", "0x18"), ("0b11", "0b11"), ("1_000", "1_000"), ("1:30", "1:30"),
        ("0o30", "0o30"), ("00.5", "00.5"), ("1:30.5", "1:30.5"), (".", "."), ("+", "+"),
        ("24", 24), ("0", 0), ("-7", -7), ("+7", 7), ("1e-5", 1e-5), ("1.5", 1.5), (".5", 0.5), ("1.", 1.0),
        ("-2.5E+3", -2500.0),
    ],
)  # fmt: skip
def test_a_number_is_a_number_in_decimal_and_nothing_else_is(tmp_path: Path, written: str, read: object) -> None:
    (tmp_path / "file.yaml").write_text(f"key: {written}\n")
    found = read_yaml(tmp_path / "file.yaml")["key"]
    assert (found, type(found)) == (read, type(read))


def own_layer(folder: Path, **sizes: str) -> Path:
    """The specification's pre-gelu as a layer of the user's own, with other sizes."""
    lines = (SPECS / "layers" / "pre-gelu.yaml").read_text().splitlines()
    for key, value in {"layer": "huge", **sizes}.items():
        [at] = [number for number, line in enumerate(lines) if line.strip().startswith(f"{key}:")]
        lines[at] = f"{lines[at][: len(lines[at]) - len(lines[at].lstrip())]}{key}: {value}"
    (folder / "huge.yaml").write_text("\n".join(lines) + "\n")
    return folder / "huge.yaml"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"d_model": "1200000000"}, "its parameters would take 40 EiB in float64"),
        ({"d_model": "3" + "0" * 30}, "YiB in float64; at most 8 TiB are possible"),
        ({"d_ff": "1000000000"}, "its parameters would take 365 GiB"),
        ({"d_model": "030"}, "d_model: Input should be a valid integer (found '030')"),
        ({"layers": "1000000000"}, "less than or equal to 4096"),
    ],
    ids=["wide", "wider-than-words", "wide-inside", "octal", "deep"],
)
@pytest.mark.parametrize(
    "command", [("run", "--impl"), pytest.param(("smoke",), marks=pytest.mark.release)], ids=["run", "smoke"]
)
def test_sizes_that_nobody_has_are_refused_with_what_they_would_take(
    conform: Callable, fake: Callable, tmp_path: Path, sizes: dict[str, str], said: str, command: tuple[str, ...]
) -> None:
    ended = conform(*command, fake("honest_copy"), "--layer", own_layer(tmp_path, **sizes))
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


BUILDERS = ("ask", "trace", "profile", "parameters", "check", "diff", "export", "validate")


@pytest.mark.parametrize("command", BUILDERS)
def test_a_layer_that_nobody_can_build_is_refused_by_each_command_that_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """In this process: `ask` ended in a traceback, `profile` began to send 365 GiB."""
    monkeypatch.chdir(tmp_path)
    for file in ("model.py", "model.onnx"):
        Path(file).write_text("")
    named = {
        "check": ["model.py:f"],
        "diff": ["model.py:f", "model.py:g"],
        "export": ["onnx_pytorch", "--to", "x.onnx"],
    }
    words = [command, *named.get(command, ["model.onnx"] if command == "validate" else [])]
    layer = own_layer(tmp_path, d_ff="1000000000")
    found = CliRunner().invoke(cli, [*words, "--layer", str(layer)])
    assert isinstance(found.exception, InputError), found.output
    assert "its parameters would take 365 GiB in float64" in str(found.exception)


@pytest.mark.release
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trace", "--batch", "1000000000"), "a frame holds 2"),
        (("trace", "--batch", "1000000000", "--length", "1"), "a frame holds 2"),
        (("trace", "--sequence", "1000000000"), "a frame holds 2"),
        (("profile", "--batch", "1000000000"), "a frame holds 2"),
        (("memory", "--measure", "--batch", "1000000000"), "a frame holds 2"),
        (("memory", "--measure", "--backward", "--layers", "1000000000"), "less than or equal to 4096"),
        (("memory", "--measure", "--backward", "--layers", "4096", "--d-ff", "1000000"), "at most 2 GiB are possible"),
        (("trace", "--d-ff", "1000000000"), "365 GiB"),
        (("parameters", "--d-model", "3000000000"), "at most 2 GiB are possible"),
    ],
    ids=" ".join,
)
def test_sizes_of_options_that_nobody_has_are_refused_at_once(honest: Path, words: tuple[str, ...], said: str) -> None:
    """A batch of 10⁹ was counted item by item, for minutes and gigabytes."""
    command, *options = words
    found = CliRunner().invoke(cli, [command, "--layer", "pre-gelu", "--impl", str(honest), *options])
    assert isinstance(found.exception, InputError), found.output
    assert said in str(found.exception)


def test_any_size_can_be_predicted() -> None:
    words = ["memory", "--layer", "pre-gelu", "--batch", "1000000000", "--sequence", "1000000000", "--json"]
    found = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert json.loads(found.stdout)["bytes"][0]["input"] == 4 * 24 * 10**18


@pytest.mark.parametrize("seconds", ["1e300", "86401", "0", "-1", ".inf", ".nan", "1:30"])
def test_a_time_limit_is_at_most_a_day(fake: Callable, seconds: str) -> None:
    with pytest.raises(InputError, match=r"timeouts\.start"):
        read_implementation(fake("patient", timeouts=f"{{start: {seconds}, build: 60, run: 60}}"))


def test_a_time_limit_that_is_none_is_bad_input(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("patient", timeouts="{start: 1e300, build: 60, run: 60}"), *CASES)
    assert ended.status == 2
    assert "timeouts.start" in ended.stderr
