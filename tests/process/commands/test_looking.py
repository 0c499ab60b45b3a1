"""`conform trace` and `profile`: the live module, and what the commands that look refuse."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from products import of_a_release

from encoder_conformance.commands.inspect.layer_selection import at_size, find_layer
from encoder_conformance.commands.inspect.trace import stage_notes
from encoder_conformance.spec.stages import SHAPES, stages


def test_every_stage_has_a_note() -> None:
    assert stage_notes().keys() == SHAPES.keys()


def test_a_trace_shows_the_live_modules_shapes(conform: Callable, honest: Path) -> None:
    ended = conform("trace", "--impl", honest, "--layer", "pre-gelu", "--batch", "3", "--sequence", "7")
    assert ended.status == 0, ended.stderr
    layer = find_layer("pre-gelu")
    due = at_size(layer, 3, 7).expected_shapes("stages")
    shown = {line.split()[0]: line for line in ended.stdout.splitlines() if line.split()}
    for stage in stages(layer):
        assert str(list(due[stage])) in shown[stage]
        assert stage_notes()[stage][:20] in shown[stage]
    assert "3, 7, 24" in ended.stdout


def test_a_trace_says_where_dropout_follows(conform: Callable, honest: Path) -> None:
    sizes = ("--layer", "pre-gelu-dropout", "--batch", "2", "--sequence", "4", "--json")
    rows = json.loads(conform("trace", "--impl", honest, *sizes).stdout)["stages"]
    rates = find_layer("pre-gelu-dropout").dropout.rates()
    said = {row["stage"]: row["note"] for row in rows if "then dropout" in row["note"]}
    assert said.keys() == rates.keys()
    for stage, rate in rates.items():
        assert f"then dropout of {rate:g}, in the same shape (A-1)" in said[stage]


def traced_dropouts(conform: Callable, folder: Path) -> dict[str, str]:
    """Row of what dropout left → its note, of a layer where the rate is 0.1 before both sums."""
    sizes = (
        "--layer",
        "pre-gelu-dropout-outside",
        "--batch",
        "16",
        "--sequence",
        "20",
        "--length",
        "20",
        "--length",
        "7",
    )
    ended = conform("trace", "--impl", folder, *sizes, "--json")
    assert ended.status == 0, ended.stderr
    rows = json.loads(ended.stdout)["stages"]
    assert all(row["shape"] == [16, 20, 24] for row in rows if row["stage"].endswith("_dropped"))
    return {row["stage"]: row["note"] for row in rows if row["stage"].endswith("_dropped")}


def test_a_trace_reads_both_dropouts_off_the_live_module(conform: Callable, honest: Path) -> None:
    left = traced_dropouts(conform, honest)
    assert left.keys() == {"attention_output_dropped", "ffn_output_dropped"}
    for note in left.values():
        assert re.search(r"training: (9|10)\.\d% is 0, the rest is multiplied by 1\.111", note), note


def test_a_dropout_that_is_built_and_never_used_is_seen_in_a_trace(conform: Callable, fake: Callable) -> None:
    lie = """
    def dropped(self, placement, value, draw):
        return value if placement == "ffn_output" else super().dropped(placement, value, draw)
    """
    left = traced_dropouts(conform, fake("undropped", lie))
    assert "0.0% is 0, the rest is multiplied by 1.000" in left["ffn_output_dropped"]
    assert "multiplied by 1.111" in left["attention_output_dropped"]


def test_what_does_not_train_has_no_dropout_to_show(conform: Callable, fake: Callable) -> None:
    assert traced_dropouts(conform, fake("inference", modes="[eval]")) == {}


@pytest.mark.parametrize("name", ["encoder-pre-gelu", "stack-post-relu", "stack-shared-heads-6"])
def test_a_stack_is_shown_with_every_stage_of_every_layer(conform: Callable, honest: Path, name: str) -> None:
    arguments = ("trace", "--impl", honest, "--layer", name, "--batch", "3", "--sequence", "5", "--length", "5")
    ended = conform(*arguments, "--length", "2", "--json")
    assert ended.status == 0, ended.stderr
    found, layer = json.loads(ended.stdout), find_layer(name)
    one = at_size(layer.one_of_it, 3, 5).expected_shapes("stages")
    del one["output"]
    due: dict[str, tuple[int, ...]] = {}
    for stage, shape in at_size(layer, 3, 5).expected_shapes("stages").items():
        if stage == "embedded":
            due |= {"token_embedding": shape, "positions": (1, *shape[1:])}
        if stage.startswith("layer_") and layer.stack.layers > 4:  # it shows none of them itself (T-3)
            due |= {f"{stage}.{inner}": at for inner, at in one.items()}
        due[stage] = shape
    assert [(row["stage"], tuple(row["shape"])) for row in found["stages"]] == list(due.items())
    given = {row["stage"]: row["shape"] for row in found["given"]}
    assert given["padding_mask"] == [3, 1, 1, 5]
    assert given["ids" if layer.embedding else "x"][:2] == [3, 5]
    assert "layer_1.attention_weights" in conform(*arguments).stdout


def test_padding_reaches_the_stages_inside_a_stack(conform: Callable, fake: Callable) -> None:
    """A fake that writes down how many keys it may attend to, whenever it shows one layer's stages: those of a stack of
    more than four are shown so."""
    lie = """
    def stages(self, x, masks, run):
        if self.layer.stack.layers == 1 and x.ndim == 3:
            with open("keys", "a") as seen:
                print(masks.joined().sum(-1).ravel().tolist(), file=seen)
        return super().stages(x, masks, run)
    """
    folder = fake("noting", lie)
    sizes = ("--layer", "stack-shared-heads-6", "--batch", "3", "--sequence", "5", "--length", "4", "--length", "2")
    assert conform("trace", "--impl", folder, *sizes).status == 0
    layers = find_layer("stack-shared-heads-6").stack.layers
    assert (folder / "keys").read_text().splitlines() == ["[4, 2, 4]"] * layers


def test_positions_that_differ_from_item_to_item_are_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        shown = super().stages(x, masks, run)
        if self.layer.embedding.positions != "none":
            shown["embedded"] = shown["embedded"] + np.float32(0.5) * np.arange(len(x), dtype=np.float32)[:, None, None]
        return shown
    """
    ended = conform("trace", "--impl", fake("moved", lie), "--layer", "encoder-pre-gelu", "--batch", "3", "--json")
    assert ended.status == 1, ended.stderr
    [row] = [row for row in json.loads(ended.stdout)["stages"] if row["stage"] == "positions"]
    assert row["shape"][0] == 3
    assert row["problem"] == "item 2 has other positions than item 0: 1.0e+00 apart"


def test_a_stack_that_is_not_made_of_its_layers_is_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        shown = super().stages(x, masks, run)
        return {name: value * np.float32(1 + (name == "layer_1") * 1e-2) for name, value in shown.items()}
    """
    folder = fake("patched", lie)
    ended = conform("trace", "--impl", folder, "--layer", "stack-shared-heads-6", "--batch", "1", "--sequence", "3")
    assert ended.status == 1, ended.stderr
    assert "the first is layer_1:" in ended.stdout
    assert "is not what layer 1 gives by itself: 9.9e-03 of its size apart" in ended.stdout


def test_a_stage_of_another_shape_is_shown_as_it_is_and_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        shown = super().stages(x, masks, run)
        shown["attention_scores"] = shown["attention_scores"][:, :1]
        shown["extra"] = shown.pop("norm2")
        return shown
    """
    folder = fake("reshaper", lie)
    arguments = ("trace", "--impl", folder, "--layer", "pre-gelu", "--batch", "2", "--sequence", "5")
    ended = conform(*arguments)
    assert ended.status == 1
    [line] = [line for line in ended.stdout.splitlines() if line.split()[:1] == ["attention_scores"]]
    assert "[2, 1, 5, 5]" in line
    assert "instead of [2, 3, 5, 5]" in line
    assert "3 of 20 stages are not as specified; the first is attention_scores: [2, 1, 5, 5]" in ended.stdout
    rows = {row["stage"]: row for row in json.loads(conform(*arguments, "--json").stdout)["stages"]}
    assert rows["norm2"]["problem"].startswith("is missing")
    assert rows["extra"]["problem"] == "is no stage of this layer"
    assert rows["query"]["conforms"]


@pytest.mark.release
def test_a_case_is_judged_by_its_golden_and_a_size_by_the_oracle(
    conform: Callable, fake: Callable, honest: Path
) -> None:
    golden = json.loads(conform("trace", "--impl", honest, "--case", "pre-gelu/padding-right", "--json").stdout)
    assert all(row["rms"] <= 2 for row in golden["stages"])
    sizes = ("--layer", "post-relu", "--batch", "1", "--sequence", "3", "--judge")
    assert conform("trace", "--impl", honest, *sizes).status == 0
    lie = """
    def stages(self, x, masks, run):
        return {name: value * (1 + (name == "context") * 1e-4) for name, value in super().stages(x, masks, run).items()}
    """
    ended = conform("trace", "--impl", fake("inexact", lie), *sizes)
    assert ended.status == 1
    assert "1 of 19 stages are not as specified; the first is context: out of line" in ended.stdout


def test_a_worker_that_gives_no_answer_is_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        print("out of luck")
        os._exit(7)
    """
    ended = conform("trace", "--impl", fake("quitter", lie), "--layer", "pre-gelu", "--batch", "1", "--sequence", "2")
    assert ended.status == 1
    assert "quitter: the worker exited with status 7; its last words: out of luck" in ended.stderr
    assert not ended.stdout


PROFILE = """
def profile(self, x, masks, run, repeats):
    seconds = np.arange(1.0, repeats + 1)
    return {"norm1": seconds, "ffn_hidden": 3 * seconds, "output": 0 * seconds}
"""


def test_a_profile_is_sorted_by_cost(conform: Callable, fake: Callable) -> None:
    folder = fake("timed", PROFILE)
    arguments = (
        "profile",
        "--impl",
        folder,
        "--layer",
        "pre-gelu",
        "--batch",
        "1",
        "--sequence",
        "2",
        "--repeats",
        "3",
    )
    ended = conform(*arguments)
    assert ended.status == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines() if line.split()]
    at = lines.index(["ffn_hidden", "6000.000", "75.0%", "4500.000", "7500.000"])
    assert lines[at + 1] == ["norm1", "2000.000", "25.0%", "1500.000", "2500.000"]
    assert "of fewer than 5 passes no stage is named" in ended.stdout
    found = json.loads(conform(*arguments, "--json").stdout)
    assert [stage["stage"] for stage in found["stages"]] == ["ffn_hidden", "norm1", "output"]
    assert found["stages"][0]["least"] == 3
    assert found["stages"][0]["most"] == 9
    assert found["most_expensive"] == []
    assert found["total"] == 8
    assert 0 < found["whole"] < 1


SPREAD = """
def profile(self, x, masks, run, repeats):
    seconds = np.arange(1.0, repeats + 1)  # quartiles 2 and 4 of five
    return {{"norm1": seconds, "ffn_hidden": seconds + {more}, "ffn_output": seconds / 100}}
"""


@pytest.mark.parametrize(
    ("more", "found", "said"),
    [
        (
            2.5,
            ["ffn_hidden"],
            "ffn_hidden, 64.5% of all stages, 4500.000 to 6500.000 ms in half of the passes; no other",
        ),
        (1.5, ["ffn_hidden", "norm1"], "it cannot be told from norm1, whose quartiles overlap"),
    ],
)
def test_the_most_expensive_stage_is_named_where_it_can_be_told(
    conform: Callable, fake: Callable, more: float, found: list[str], said: str
) -> None:
    """One pass of five is slow in both: neither the least nor the most decides."""
    sizes = ("--layer", "pre-gelu", "--batch", "1", "--sequence", "2", "--repeats", "5")
    folder = fake("spread", SPREAD.format(more=more))
    assert json.loads(conform("profile", "--impl", folder, *sizes, "--json").stdout)["most_expensive"] == found
    assert said in conform("profile", "--impl", folder, *sizes).stdout


@pytest.mark.parametrize(
    ("lie", "status", "said"),
    [
        ("pass", 2, "cannot tell stages apart: profile: Liar does not say how long a stage takes"),
        of_a_release("raise NotImplementedError('it is fused')", 2, "cannot tell stages apart: profile: it is fused"),
        of_a_release("raise ValueError('no clock')", 1, "ValueError: no clock"),
        ("return {'norm1': np.ones(repeats + 1)}", 1, "norm1: float64 [4] instead of float64 [3]"),
        of_a_release("return {'norm1': -np.ones(repeats)}", 1, "norm1: -1 s is no time"),
        ("return {}", 1, "no stage was timed"),
    ],
)
def test_a_profile_that_is_none(conform: Callable, fake: Callable, lie: str, status: int, said: str) -> None:
    body = "pass" if lie == "pass" else f"def profile(self, x, masks, run, repeats):\n    {lie}"
    ended = conform(
        *("profile", "--impl", fake("untimed", body), "--layer", "pre-gelu", "--batch", "1"),
        *("--sequence", "2", "--repeats", "3"),
    )
    assert ended.status == status, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback (most" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace", "--layer", "pre-gelu-52"], "did you mean pre-gelu-512"),
        (["trace", "--layer", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["trace", "--batch", "0"], "--batch"),
        (["memory", "--sequence", "-1"], "--sequence"),
        (["trace", "--impl", "pytroch"], "did you mean pytorch"),
        (["trace", "--case", "pre-gelu/no-musk"], "did you mean pre-gelu/no-mask"),
        (["trace", "--case", "pre-gelu/no-mask", "--batch", "2"], "a case has a layer, sizes and a golden of its own"),
        (["trace", "--impl", "{honest}", "--num-heads", "5"], "num_heads = 5 contradicts d_model = 512"),
        (["trace", "--impl", "{honest}", "--batch", "512", "--sequence", "1024"], "--batch 18 would fit"),
        (["trace", "--impl", "{honest}", "--sequence", "512", "--judge"], "leave --judge out"),
        (["trace", "--impl", "{absent}"], "no_such_framework not importable"),
        (["trace", "--impl", "{honest}", "--sequence", "5", "--length", "6"], "has 6, sequence is 5"),
        (["trace", "--case", "pre-gelu/no-mask", "--length", "2"], "a case has a layer, sizes and a golden of its own"),
        (["memory", "--limit", "8"], "is no amount of memory"),
        (["memory", "--impl", "{honest}"], "add --measure"),
        (["profile", "--repeats", "0"], "--repeats"),
        (["profile", "--impl", "{only64}"], "dtype float32 is not among its capabilities"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(
    conform: Callable, fake: Callable, honest: Path, arguments: list[str], said: str
) -> None:
    places = {
        "honest": honest,
        "absent": fake("absent", requires="[no_such_framework]"),
        "only64": fake("only64", dtypes="[float64]"),
    }
    ended = conform(*(argument.format(**places) for argument in arguments))
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
