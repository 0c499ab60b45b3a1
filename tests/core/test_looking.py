"""`conform trace`, `memory` and `profile`: the digits, the live module, and what they refuse."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.look.alive import alive
from harness.look.memory import PARTS, added_as_shown, longest_sequence, mib, parse_amount, parts, total
from harness.look.notes import stage_notes
from harness.look.subject import at_size, find_layer, resized
from harness.spec.stages import SHAPES, stages

LAYER = find_layer("pre-gelu-512")


def test_the_published_table_of_activations() -> None:
    held = parts(LAYER, 32, 50, 4)
    assert [mib(held[part]) for part in PARTS] == ["3.12", "9.38", "2.44", "3.12", "12.50"]
    assert added_as_shown(list(held.values())) == "30.56"
    assert mib(total(LAYER, 32, 50, 4)) == "30.57"
    assert total(LAYER, 32, 50, 4, layers=6) == 6 * 32_051_200
    assert [mib(parts(LAYER, 32, S, 4)["attn_scores"]) for S in (50, 100, 512, 1024)] == [
        "2.44",
        "9.77",
        "256.00",
        "1024.00",
    ]
    assert list(map(mib, parts(LAYER, 32, 512, 4).values())) == ["32.00", "96.00", "256.00", "32.00", "128.00"]


@pytest.mark.parametrize("size", [0, 2**20 // 8, 3 * 2**20 // 8, 9_830_400, 123_456_789, 2**60 + 1])
def test_two_decimals_are_those_of_the_exact_quotient(size: int) -> None:
    assert mib(size) == f"{size / 2**20:.2f}"


@given(
    st.integers(1, 64),
    st.integers(1, 32),
    st.integers(1, 128),
    st.integers(1, 20_000),
    st.integers(1, 96),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 2**45),
)
def test_the_longest_sequence_fits_and_the_next_does_not(
    batch: int, heads: int, head_dim: int, d_ff: int, layers: int, itemsize: int, limit: int
) -> None:
    layer = resized(LAYER, heads * head_dim, heads, d_ff)
    S = longest_sequence(layer, batch, itemsize, layers, limit)
    assert total(layer, batch, S, itemsize, layers) <= limit < total(layer, batch, S + 1, itemsize, layers)


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_limit_that_is_exactly_a_total_is_enough(batch: int, sequence: int) -> None:
    exact = total(LAYER, batch, sequence, 4, 3)
    assert longest_sequence(LAYER, batch, 4, 3, exact) == sequence
    assert longest_sequence(LAYER, batch, 4, 3, exact - 1) == sequence - 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 2**33), ("512 MiB", 2**29), ("1.5GB", 1_500_000_000), ("1kb", 1000), ("2tib", 2**41), ("7B", 7)],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert parse_amount(text, "--limit") == size


@pytest.mark.parametrize("text", ["", "8", "GiB", "8Gi", "-8GiB", "8GiB2", "0GiB", "1e3MB", "8 gigs"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(InputError, match=r"--limit: .* is no amount of memory"):
        parse_amount(text, "--limit")


def test_what_is_alive_when() -> None:
    """Counted by hand from the model in harness/look/alive.py, at B = 32, S = 50: x is one BSD, F is four."""
    bsd, scores = 32 * 50 * 512, 32 * 8 * 50 * 50
    for placement in ("pre", "post"):
        found = alive(at_size(LAYER, 32, 50), placement)
        assert found.at == "ffn_activation"
        assert found.peak == 9 * bsd  # the residual stream, and the hidden layer before and after the activation
        assert found.kept == 8 * bsd + scores + 2 * 4 * bsd
    relu = alive(at_size(find_layer("post-relu-512"), 32, 50), "post")
    assert relu.kept == 8 * bsd + scores + 4 * bsd, "ReLU's result is what the next linear map keeps too"
    long = alive(at_size(LAYER, 1, 4096), "pre")
    assert (long.at, set(long.holding)) == (
        "attention_weights",
        {"x", "value", "attention_scores", "attention_weights"},
    )
    narrow = at_size(resized(LAYER, None, None, 8), 32, 50)  # where the peak is at the projections, they differ
    assert alive(narrow, "pre").peak == 5 * bsd, "x, norm1, query, key and value"
    assert alive(narrow, "post").peak == 4 * bsd + scores, "x, query, key, value and the scores: no norm1 beside x"


def test_every_stage_has_a_note() -> None:
    assert stage_notes().keys() == SHAPES.keys()


def test_memory_on_the_terminal_and_as_json(conform: Callable) -> None:
    sizes = ("--d-model", "512", "--num-heads", "8", "--d-ff", "2048", "--batch", "32")
    shown = conform("memory", *sizes, "--sequence", "50", "--sequence", "1024", "--layers", "6", "--limit", "8GiB")
    assert shown.status == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    for line in (
        ["input", "B·S·D", "3.12", "64.00"],
        ["attn_scores", "B·H·S²", "2.44", "1024.00"],
        ["total", "30.56", "1600.00"],
        ["6", "layers", "183.40", "9600.00"],
    ):
        assert line in lines
    assert "32,051,200 bytes are 30.57" in shown.stdout
    facts = json.loads(conform("memory", *sizes, "--layers", "6", "--limit", "8GiB", "--json").stdout)
    limit = facts["limit"]
    assert limit["total"] <= limit["bytes"] == 2**33 < limit["next"]
    assert f"S = {limit['sequence']} takes" in shown.stdout
    assert facts["bytes"][0]["total"] == 32_051_200


def test_nothing_fits(conform: Callable) -> None:
    assert "not even S = 1 fits" in conform("memory", "--limit", "1KiB").stdout


ELSEWHERE = """
import sys, pytest

class Elsewhere:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self):
        sys.platform = "elsewhere"

sys.exit(pytest.main(sys.argv[1:], plugins=[Elsewhere()]))
"""


def test_what_only_linux_can_do_is_deselected_elsewhere_and_not_skipped() -> None:
    words = ("--collect-only", "-q", "-p", "no:cacheprovider", __file__, "-k", "measurement or fits")
    program = [sys.executable, "-c", ELSEWHERE, *words]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "test_nothing_fits" in ended.stdout
    assert "test_a_measurement_sees" not in ended.stdout
    assert "deselected" in ended.stdout


@pytest.mark.linux
def test_a_measurement_sees_what_is_held_and_freed(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks):
        if x.shape[1] > 2:
            held = np.ones(64 << 20, dtype=np.uint8)
            del held
        return super().output(x, masks)
    """
    folder = fake("glutton", lie)
    sizes = ("--layer", "pre-gelu", "--batch", "1", "--sequence", "4", "--json")
    [greedy] = json.loads(conform("memory", *sizes, "--measure", "--impl", folder).stdout)["measured"]
    [modest] = json.loads(conform("memory", *sizes, "--measure", "--impl", fake("modest")).stdout)["measured"]
    assert greedy["rise"] - modest["rise"] == pytest.approx(64 * 2**20, rel=0.05)
    assert modest["rise"] < 4 * 2**20


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


def test_a_stage_of_another_shape_is_shown_as_it_is_and_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks):
        shown = super().stages(x, masks)
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


def test_a_case_is_judged_by_its_golden_and_a_size_by_the_oracle(
    conform: Callable, fake: Callable, honest: Path
) -> None:
    golden = json.loads(conform("trace", "--impl", honest, "--case", "pre-gelu/padding-right", "--json").stdout)
    assert all(row["rms"] <= 2 for row in golden["stages"])
    sizes = ("--layer", "post-relu", "--batch", "1", "--sequence", "3", "--judge")
    assert conform("trace", "--impl", honest, *sizes).status == 0
    lie = """
    def stages(self, x, masks):
        return {name: value * (1 + (name == "context") * 1e-4) for name, value in super().stages(x, masks).items()}
    """
    ended = conform("trace", "--impl", fake("inexact", lie), *sizes)
    assert ended.status == 1
    assert "1 of 19 stages are not as specified; the first is context: out of line" in ended.stdout


def test_a_worker_that_gives_no_answer_is_said(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks):
        print("out of luck")
        os._exit(7)
    """
    ended = conform("trace", "--impl", fake("quitter", lie), "--layer", "pre-gelu", "--batch", "1", "--sequence", "2")
    assert ended.status == 1
    assert "quitter: the worker exited with status 7; its last words: out of luck" in ended.stderr
    assert not ended.stdout


PROFILE = """
def profile(self, x, masks, repeats):
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
    at = lines.index(["ffn_hidden", "6000.000", "75.0%", "3000.000", "9000.000"])
    assert lines[at + 1] == ["norm1", "2000.000", "25.0%", "1000.000", "3000.000"]
    found = json.loads(conform(*arguments, "--json").stdout)
    assert [stage["stage"] for stage in found["stages"]] == ["ffn_hidden", "norm1", "output"]
    assert found["total"] == 8
    assert 0 < found["whole"] < 1


@pytest.mark.parametrize(
    ("lie", "status", "said"),
    [
        ("pass", 2, "unsupported: Liar does not say how long a stage takes"),
        ("raise NotImplementedError('it is fused')", 2, "unsupported: it is fused"),
        ("raise ValueError('no clock')", 1, "ValueError: no clock"),
        ("return {'norm1': np.ones(repeats + 1)}", 1, "norm1: float64 [4] instead of float64 [3]"),
        ("return {'norm1': -np.ones(repeats)}", 1, "norm1: -1 s is no time"),
        ("return {}", 1, "no stage was timed"),
    ],
)
def test_a_profile_that_is_none(conform: Callable, fake: Callable, lie: str, status: int, said: str) -> None:
    body = "pass" if lie == "pass" else f"def profile(self, x, masks, repeats):\n    {lie}"
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
        (["trace", "--impl", "{honest}", "--num-heads", "5"], "num_heads = 5 does not divide d_model = 512"),
        (["trace", "--impl", "{honest}", "--batch", "512", "--sequence", "1024"], "--batch 18 would fit"),
        (["trace", "--impl", "{honest}", "--sequence", "512", "--judge"], "leave --judge out"),
        (["trace", "--impl", "{absent}"], "no_such_framework not importable"),
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
