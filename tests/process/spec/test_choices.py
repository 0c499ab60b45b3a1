"""What an implementation can be told: a variant is a row of its own, with the manifest's entries that speak of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

CASES = ("--case", "pre-gelu/no-mask", "--case", "pre-gelu/low-variance")
LEVELS = "{name: level, values: [all, basic]}"
OPSETS = '{name: opset, values: ["18", "20"], requires: {"20": [a_module_that_nobody_has]}}'

LIE = """
    def start(self, device, threads):
        started = super().start(device, threads)
        return Environment(started.versions, {**started.settings, **self.choices})

    def build(self, layer, parameters, dtype):
        wrong = {"epsilon": 1e-3} if self.choices["level"] == "basic" else {}
        return super().build({**layer, "norm": {**layer["norm"], **wrong}}, parameters, dtype)
"""


@pytest.fixture
def told(fake: Callable) -> Callable[..., Path]:
    """A fake that is right unless it is told `level=basic`."""

    def write(**manifest: str) -> Path:
        folder: Path = fake("told", LIE, **manifest)
        path = folder / "impl.yaml"
        path.write_text(path.read_text().replace("capabilities:", f"choices: [{LEVELS}, {OPSETS}]\ncapabilities:"))
        return folder

    return write


@pytest.mark.release
def test_a_variant_is_a_row_of_its_own_and_its_adapter_is_told(conform: Callable, told: Callable) -> None:
    folder = told(checks="[output, stages]")
    ended = conform("run", "--impl", folder, "--impl", f"{folder}:level=basic", *CASES, "--dtype", "float32")
    assert ended.status == 1
    assert set(ended.outcomes("output", "told")) == {"pass"}
    assert "fail" in ended.outcomes("output", "told:level=basic")
    settings = [judged["settings"] for judged in ended.report["implementations"]]
    assert [(s["level"], s["opset"]) for s in settings] == [("all", "18"), ("basic", "18")]
    logs = {Path(judged["log"]) for judged in ended.report["implementations"]}
    assert len(logs) == 2
    assert all(log.is_file() for log in logs)
    explained = conform("explain").stdout
    assert "told:level=basic" in explained
    [repeat] = [line for line in explained.splitlines() if line.startswith("Repeat: conform run ")]
    repeated = conform(*repeat.removeprefix("Repeat: conform ").split(), diagnosed=False)
    assert repeated.outcomes("output") == ["fail"]


def test_a_default_that_is_said_is_the_same_variant(conform: Callable, told: Callable) -> None:
    folder = told()
    ended = conform("run", "--impl", f"{folder}:opset=18,level=all", *CASES, "--dtype", "float32")
    assert {record["implementation"] for record in ended.report["records"]} == {"told"}
    twice = conform("run", "--impl", folder, "--impl", f"{folder}:level=all", *CASES)
    assert twice.status == 2
    assert "two implementations are called told" in twice.stderr


def test_entries_speak_of_the_variants_that_they_name(conform: Callable, told: Callable) -> None:
    entry = 'when: {choices: {level: basic}, dtype: float32}, reason: "It is made so", link: "https://example.org"'
    folder = told(unsupported=f"[{{{entry}}}]")
    ended = conform("run", "--impl", folder, "--impl", f"{folder}:level=basic", *CASES, "--dtype", "float32")
    assert set(ended.outcomes(implementation="told")) == {"pass"}
    assert set(ended.outcomes(implementation="told:level=basic")) == {"unsupported"}


def test_a_deviation_may_be_that_of_one_variant(conform: Callable, told: Callable) -> None:
    entry = 'deviation: norm-eps-1e-3, when: {choices: {level: basic}}, reason: "It is made so", link: "https://example.org"'
    folder = told(deviations=f"[{{{entry}}}]")
    ended = conform("run", "--impl", folder, "--impl", f"{folder}:level=basic", *CASES, "--dtype", "float32")
    assert set(ended.outcomes("output", "told")) == {"pass"}, ended.messages()
    assert set(ended.outcomes("output", "told:level=basic")) <= {"pass", "deviates"}
    assert "deviates" in ended.outcomes("output", "told:level=basic")
    assert ended.status == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("level=bassic", "level cannot be 'bassic'\n  did you mean basic? (one of all, basic)"),
        ("levle=basic", "there is no choice called 'levle'\n  did you mean level?"),
        ("level=basic,opset", "'opset' is not key=value"),
        ("level=basic,level=all", "gives level twice"),
        ("opset=20", "a_module_that_nobody_has not importable"),
    ],
)
def test_what_cannot_be_chosen_is_said(conform: Callable, told: Callable, asked: str, said: str) -> None:
    ended = conform("run", "--impl", f"{told()}:{asked}", *CASES)
    assert ended.status == 2
    assert said in ended.stderr, ended.stderr
    assert asked.partition("=")[0] in ended.stderr or "--impl" in ended.stderr


def test_an_entry_that_speaks_of_no_choice_is_refused(conform: Callable, told: Callable) -> None:
    entry = 'when: {choices: {level: fast}}, reason: "It is made so", link: "https://example.org"'
    ended = conform("run", "--impl", told(unsupported=f"[{{{entry}}}]"), *CASES)
    assert ended.status == 2
    assert "an entry has choices level: fast, which the manifest does not define" in ended.stderr


def test_one_that_must_be_told_says_what(conform: Callable, fake: Callable) -> None:
    folder = fake("untold")
    path = folder / "impl.yaml"
    path.write_text(path.read_text().replace("capabilities:", "choices: [{name: model, values: any}]\ncapabilities:"))
    ended = conform("run", "--impl", folder, *CASES)
    assert ended.status == 2
    assert "needs model" in ended.stderr
    assert "NAME:model=" in ended.stderr
    ran = conform("run", "--impl", f"{folder}:model=/a/b.onnx", "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ran.status == 0
    assert {record["implementation"] for record in ran.report["records"]} == {"untold:model=/a/b.onnx"}


OWN = """
    def build(self, layer, parameters, dtype):
        if self.choices["defaults"] == "own":  # made without arguments: a layer of its own
            layer = {{**self.defaults(layer), "feed_forward": {{**layer["feed_forward"], "activation": "gelu"}}}}
        return super().build(layer, parameters, dtype)

    def defaults(self, layer):
        norm = {{"placement": "pre", "kind": "layer_norm", "epsilon": float(np.float32({epsilon}))}}
        return {{**layer, "norm": norm, "attention": {{**layer["attention"], "scale": "head_dim"}}}}
"""


@pytest.fixture
def untold(fake: Callable) -> Callable[..., Path]:
    """A fake whose layer, made without arguments, is pre-gelu's but for its `epsilon`."""

    def write(epsilon: str = "1e-5", defaults: str = "[pre-gelu]", values: str = "[given, own]") -> Path:
        folder: Path = fake("untold", OWN.format(epsilon=epsilon))
        path = folder / "impl.yaml"
        said = f"choices: [{{name: defaults, values: {values}}}]\ndefaults: {defaults}\ncapabilities:"
        path.write_text(path.read_text().replace("capabilities:", said))
        return folder

    return write


def test_a_layer_that_is_made_without_arguments_is_the_one_that_its_manifest_says(
    conform: Callable, untold: Callable
) -> None:
    others = ("--case", "post-gelu/no-mask", "--case", "pre-gelu-tanh/no-mask")
    ended = conform("run", "--impl", f"{untold()}:defaults=own", *CASES, *others, "--dtype", "float32")
    assert ended.status == 0, ended.messages()
    outcomes = {record["case"]: record["outcome"] for record in ended.report["records"]}
    assert outcomes == {
        "pre-gelu/no-mask": "pass",
        "pre-gelu/low-variance": "pass",
        "post-gelu/no-mask": "unsupported",
        "pre-gelu-tanh/no-mask": "unsupported",
    }
    assert "with its own defaults it makes pre-gelu, and no post-gelu" in ended.messages()


@pytest.mark.release
def test_a_default_that_is_another_is_named(conform: Callable, untold: Callable) -> None:
    folder = untold(epsilon="1e-3")
    ended = conform("run", "--impl", folder, "--impl", f"{folder}:defaults=own", *CASES, "--dtype", "float32")
    assert ended.status == 1
    assert set(ended.outcomes(implementation="untold")) == {"pass"}
    assert "fail" in ended.outcomes("output", "untold:defaults=own")
    assert "norm-eps-1e-3" in ended.stdout


def test_defaults_without_a_choice_of_them_are_refused(conform: Callable, untold: Callable) -> None:
    ended = conform("run", "--impl", untold(values="[given]"), *CASES)
    assert ended.status == 2
    assert "none called defaults with the value own" in ended.stderr
