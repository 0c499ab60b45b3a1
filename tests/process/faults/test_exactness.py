"""Adapters that have the expected values: their numbers are right, and it is said that they are too right."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CASES = ("--case", "pre-gelu/mask-*", "--case", "post-relu/mask-*")

READS_GOLDENS = """
def output(self, x, masks, run):
    from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
    from encoder_conformance.spec.load import constants
    from encoder_conformance.spec.load import load
    honest = super().output(x, masks, run)
    given = run.batch_first(x)
    found = []
    for case in load().cases.values():
        if case.layer.layer != self.layer.layer or case.needs_no_golden or case.x_shape != given.shape:
            continue
        if not np.array_equal(case.x().astype(self.dtype), given, equal_nan=True):
            continue
        tensor = read_golden(case, read_golden_manifest(), constants()).tensors.get("output")
        if tensor is None:
            continue
        whole = np.array(run.batch_first(honest), np.float64)
        whole.reshape(-1)[tensor.positions] = tensor.golden
        found.append(run.as_given(whole.astype(self.dtype)))
    return min(found, key=lambda each: np.nan_to_num(abs(each - honest)).max(), default=honest)
"""

WIDER = """
def build(self, layer, parameters, dtype):
    self.asked = dtype
    wide = super().build(layer, {name: value.astype("float64") for name, value in parameters.items()}, "float64")
    return {name: value.astype(dtype) for name, value in wide.items()}

def output(self, x, masks, run):
    return super().output(x.astype("float64"), masks, run).astype(self.asked)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_goldens_that_are_read_are_too_exact(conform: Callable, fake: Callable, dtype: str) -> None:
    ended = conform("run", "--impl", fake("reader", READS_GOLDENS, checks="[output]"), *CASES, "--dtype", dtype)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert f"reader {dtype}: suspiciously exact: " in ended.stdout
    [said] = ended.report["suspicious"]
    assert (said["implementation"], said["dtype"]) == ("reader", dtype)
    assert said["below"] > 0.8 * said["checks"]


def test_a_wider_format_is_too_exact_and_does_not_fail(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("wider", WIDER, checks="[output]"), *CASES, "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "wider float32: suspiciously exact: " in ended.stdout
    assert "Either it computes in a wider format" in ended.stdout


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_oracles_own_equations_are_not_too_exact(conform: Callable, honest: Path, dtype: str) -> None:
    """It computes step by step as the oracle does, in float64; goldens are computed in more than that."""
    ended = conform("run", "--impl", honest, *CASES, "--dtype", dtype)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "suspiciously" not in ended.stdout
    assert ended.report["suspicious"] == []


def test_a_few_checks_say_nothing(conform: Callable, fake: Callable) -> None:
    folder = fake("reader", READS_GOLDENS, checks="[output]")
    ended = conform("run", "--impl", folder, "--case", "pre-gelu/no-mask")
    assert ended.report["suspicious"] == []


@pytest.mark.release
def test_a_random_seed_is_drawn_and_printed_and_can_be_repeated(
    conform: Callable, fake: Callable, tmp_path: Path
) -> None:
    few = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
    wrong = fake("wrong", "def output(self, x, masks, run):\n    raise ValueError(f'what was drawn: {x.sum()}')")
    first = conform("run", "--impl", wrong, *few, "--seed", "random")
    assert first.status == 1, first.stdout + first.stderr
    seed = first.report["environment"]["seed"]
    assert seed > 0
    assert f"Drawn: --seed {seed}\n" in first.stderr
    assert "Drawn" not in first.stdout
    assert f", seed {seed}" in first.stdout
    assert f"--seed {seed}" in conform("explain").stdout.splitlines()[-1]
    [everything] = [line for line in first.stdout.splitlines() if line.startswith("All ")]
    assert f"--seed {seed}" in everything
    assert "--seed random" not in everything
    again = conform("run", "--impl", wrong, *few, "--seed", str(seed), "--out", tmp_path / "again")
    messages = [record["message"] for record in json.loads((tmp_path / "again" / "report.json").read_text())["records"]]
    assert "what was drawn: " in messages[0]
    assert messages == [record["message"] for record in first.report["records"]]
    assert again.status == 1
    other = conform("run", "--impl", wrong, *few, "--seed=random", "--out", tmp_path / "other")
    assert f"--seed {seed}" not in other.stdout
    [everything] = [line for line in other.stdout.splitlines() if line.startswith("All ")]
    assert "--seed=random" not in everything
