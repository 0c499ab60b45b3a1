"""`conform memory`: the digits, what is alive when, and what a worker really takes."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder_conformance.commands.inspect.layer_selection import at_size, find_layer, resized
from encoder_conformance.commands.inspect.liveness import liveness
from encoder_conformance.commands.inspect.memory import (
    PARTS,
    added_as_shown,
    growth,
    longest_sequence,
    mib,
    parse_amount,
    parts,
    states,
    total,
)
from encoder_conformance.platform.errors import InputError

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


def test_the_estimate_that_leaves_out_attentions_output(conform: Callable) -> None:
    """A's: input, scores, query, key and value, and the hidden layer, at B = 32, S = 512."""
    ended = conform("memory", "--batch", "32", "--sequence", "512")
    assert ["total", "without", "attn_out", "512.00"] in [line.split() for line in ended.stdout.splitlines()]
    [facts] = json.loads(conform("memory", "--batch", "32", "--sequence", "512", "--json").stdout)["bytes"]
    assert facts["total_without_attn_out"] == 512 * 2**20
    assert facts["total"] == 544 * 2**20


def test_three_totals_of_six_layers(conform: Callable) -> None:
    """183.36 is six times the total as shown, 183.40 the bytes; 183.38 would be of scores of 2.4375 MiB."""
    held = list(parts(LAYER, 32, 50, 4).values())
    assert added_as_shown(held, times=6) == "183.36"
    assert mib(6 * sum(held)) == "183.40"
    others = sum(held) - parts(LAYER, 32, 50, 4)["attn_scores"]
    assert mib(6 * (others + int(2.4375 * 2**20))) == "183.38"
    shown = conform("memory", "--layers", "6").stdout
    assert "6 layers: 6 × 30.56 as shown are 183.36; 192,307,200 bytes are 183.40" in shown


def test_how_scores_grow() -> None:
    first, *others = (parts(LAYER, 32, S, 4)["attn_scores"] for S in (50, 100, 512, 1024))
    assert [growth(size, first) for size in others] == ["4.00×", "104.86×", "419.43×"]


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
    """Counted by hand from the model in inspect/liveness.py, at B = 32, S = 50: x is one BSD, F is four."""
    bsd, scores = 32 * 50 * 512, 32 * 8 * 50 * 50
    for placement in ("pre", "post"):
        found = liveness(at_size(LAYER, 32, 50), placement)
        assert found.at == "ffn_activation"
        assert found.peak == 9 * bsd  # the residual stream, and the hidden layer before and after the activation
        assert found.kept == 8 * bsd + scores + 2 * 4 * bsd
    relu = liveness(at_size(find_layer("post-relu-512"), 32, 50), "post")
    assert relu.kept == 8 * bsd + scores + 4 * bsd, "ReLU's result is what the next linear map keeps too"
    long = liveness(at_size(LAYER, 1, 4096), "pre")
    assert (long.at, set(long.holding)) == (
        "attention_weights",
        {"x", "value", "attention_scores", "attention_weights"},
    )
    narrow = at_size(resized(LAYER, None, None, 8), 32, 50)  # where the peak is at the projections, they differ
    assert liveness(narrow, "pre").peak == 5 * bsd, "x, norm1, query, key and value"
    assert liveness(narrow, "post").peak == 4 * bsd + scores, "x, query, key, value and the scores: no norm1 beside x"


def test_what_dropout_keeps_in_training() -> None:
    """A mask of each of the four, and the weights before their dropout, which softmax keeps."""
    scores, bsd = 32 * 8 * 50 * 50, 32 * 50 * 512
    for placement in ("pre", "post"):
        found = liveness(at_size(LAYER, 32, 50), placement)
        assert found.kept_in_training == found.kept + (scores + bsd + 4 * bsd + bsd) + scores
    without = liveness(at_size(resized(LAYER, None, None, None, dropout=0.0), 32, 50), "pre")
    assert without.kept_in_training == without.kept
    relu = resized(find_layer("post-relu-512"), None, None, None, dropout=0.1)
    found = liveness(at_size(relu, 32, 50), "post")
    assert found.kept_in_training == found.kept + (scores + 6 * bsd) + scores + 4 * bsd, "and what ReLU gave"


def test_memory_on_the_terminal_and_as_json(conform: Callable) -> None:
    sizes = ("--d-model", "512", "--num-heads", "8", "--d-ff", "2048", "--batch", "32")
    shown = conform("memory", *sizes, "--sequence", "50", "--sequence", "1024", "--layers", "6", "--limit", "8GiB")
    assert shown.status == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    for line in (
        ["input", "B·S·D", "3.12", "64.00"],
        ["attn_scores", "B·H·S²", "2.44", "1024.00"],
        ["attn_scores", "against", "S", "=", "50", "S²", "1.00×", "419.43×"],
        ["total", "30.56", "1600.00"],
        ["total", "without", "attn_out", "27.44", "1536.00"],
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


def test_a_way_back_is_measured_and_not_predicted(conform: Callable) -> None:
    ended = conform("memory", "--backward")
    assert ended.status == 2
    assert "--backward: only a measurement asks an implementation" in ended.stderr


ELSEWHERE = """
import sys, pytest

class Elsewhere:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self):
        sys.platform = "elsewhere"

sys.exit(pytest.main(sys.argv[1:], plugins=[Elsewhere()]))
"""


@pytest.mark.release
def test_what_only_linux_can_do_is_deselected_elsewhere_and_not_skipped() -> None:
    words = ("--collect-only", "-q", "-p", "no:cacheprovider", __file__, "-k", "measurement or fits")
    program = [sys.executable, "-c", ELSEWHERE, *words]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "test_nothing_fits" in ended.stdout
    assert "test_a_measurement_sees" not in ended.stdout
    assert "deselected" in ended.stdout


@pytest.mark.release
@pytest.mark.linux
def test_a_measurement_sees_what_is_held_and_freed(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        if x.shape[1] > 2:
            held = np.ones(64 << 20, dtype=np.uint8)
            del held
        return super().output(x, masks, run)
    """
    folder = fake("glutton", lie)
    sizes = ("--layer", "pre-gelu", "--batch", "1", "--sequence", "4", "--json")
    [greedy] = json.loads(conform("memory", *sizes, "--measure", "--impl", folder).stdout)["measured"]
    [modest] = json.loads(conform("memory", *sizes, "--measure", "--impl", fake("modest")).stdout)["measured"]
    assert greedy["rise"] - modest["rise"] == pytest.approx(64 * 2**20, rel=0.05)
    assert modest["rise"] < 4 * 2**20


def test_the_longest_sequence_beside_weights_gradients_and_moments(conform: Callable) -> None:
    sizes = ("--d-model", "1024", "--num-heads", "16", "--d-ff", "4096", "--layers", "24", "--batch", "1")
    ended = conform("memory", *sizes, "--limit", "8GiB", "--states", "adam", "--json")
    facts = json.loads(ended.stdout)
    each = 24 * (4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024) * 4
    assert facts["states"] == {"weights": each, "gradients": each, "two moments": 2 * each}
    limit = facts["limit"]
    assert limit["states"] == 4 * each
    assert limit["total"] <= 2**33 < limit["next"]
    layer = resized(LAYER, 1024, 16, 4096)
    assert limit["total"] == 4 * each + total(layer, 1, limit["sequence"], 4, 24)
    shown = conform("memory", *sizes, "--limit", "4GiB", "--states", "adam")
    assert "beside weights and gradients and two moments of" in shown.stdout
    assert "not even S = 1 fits" in shown.stdout


def test_states_count_a_stacks_embedding_and_final_norm() -> None:
    stack = find_layer("encoder-512")
    one = states(LAYER, "weights", 4, 1)["weights"]
    assert states(stack, "sgd", 4, 6)["gradients"] == 6 * one + (1000 * 512 + 2 * 512) * 4


@pytest.mark.release
@pytest.mark.linux
def test_what_checkpointing_saves_is_measured(conform: Callable, fake: Callable) -> None:
    """A fake that holds 32 MiB for each of three layers, and one by one where activations are to be made again."""
    lie = """
    def gradients(self, x, masks, run, cotangent):
        if x.shape[1] > 2:
            layers = 1 if run.checkpoint else self.layer.stack.layers
            held = [np.ones(32 << 20, dtype=np.uint8) for _ in range(layers)]
            del held
        return super().gradients(x, masks, run, cotangent)
    """
    sizes = ("--layer", "pre-gelu", "--layers", "3", "--batch", "1", "--sequence", "4", "--measure", "--backward")
    folder = fake("saver", lie)
    found = json.loads(conform("memory", *sizes, "--impl", folder, "--json").stdout)["measured"]
    assert [(row["pass"], row["layers"]) for row in found] == [
        ("forward", 1),
        ("forward and backward", 3),
        ("forward and backward, checkpointed", 3),
    ]
    assert found[1]["rise"] - found[2]["rise"] == pytest.approx(64 * 2**20, rel=0.05)
    shown = conform("memory", *sizes, "--impl", folder).stdout
    [saved] = [line.split()[-1] for line in shown.splitlines() if "saved by checkpointing" in line]
    assert float(saved) == pytest.approx(64, rel=0.05)
