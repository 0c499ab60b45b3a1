"""Other draws of inputs and parameters (rule P-6), and threads: what a run is given, says, and sees through."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load

CASES = {name: case for name, case in load().with_golden.items() if case.situation.batch}
SMALL_CASES = [case for case in CASES.values() if case.layer.family == "small"]
SMALL = CASES["post-relu/single-position"]
RUN = ("--case", "pre-gelu/no-mask", "--case", "post-relu/padding-right", "--dtype", "float32")
NO_ROWS = np.zeros((0, 2), dtype=np.int64)

PATTERN = {
    "symmetric": set(range(-255, 256)),
    "gain": set(range(64, 192)),
    "offset": {254, 255},
}

MEMORISED = """
def build(self, layer, parameters, dtype):
    from encoder_conformance.spec.case import layer_parameters
    super().build(layer, parameters, dtype)
    known = layer_parameters(self.layer, {})
    self.parameters = {name: value.astype(dtype) for name, value in known.items()}
    return parameters

def output(self, x, mask, run):
    return super().output(self.known("x", x), mask, run)

def stages(self, x, mask, run):
    return super().stages(self.known("x", x), mask, run)

def gradients(self, x, mask, run, cotangent):
    silent = np.all(cotangent == 0, axis=-1, keepdims=True)
    return super().gradients(self.known("x", x), mask, run, np.where(silent, 0, self.known("cotangent", x)))

def known(self, name, like):
    from encoder_conformance.spec import portable
    return portable.tensor(name, like.shape, "symmetric", -7).astype(like.dtype)
"""
"""Answers for the frozen inputs whatever it is given: one who had learnt the goldens by heart would do as well."""

EPSILON = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-3})})
    return held
"""


def tensors(case: Case) -> dict[str, np.ndarray]:
    return {"x": case.x(), "cotangent": case.cotangent(NO_ROWS), **case.parameters()}


@pytest.mark.parametrize("case", SMALL_CASES, ids=lambda case: case.id)
def test_a_seed_changes_every_tensor_and_keeps_its_pattern(case: Case) -> None:
    plain, *others = (tensors(replace(case, seed=seed)) for seed in (0, 1, 2))
    for name, value in plain.items():
        pattern = "gain" if name.endswith("gain") else case.situation.input.pattern if name == "x" else "symmetric"
        drawn = [other[name] for other in others]
        # Some element is more than half of the pattern's largest, so this is the power of two that it was drawn with.
        exponent = int(np.ceil(np.log2(np.abs(value).max() / max(PATTERN[pattern]))))
        for other in drawn:
            assert other.shape == value.shape, name
            assert set(np.unique(np.ldexp(other, -exponent))) <= PATTERN[pattern], name
            assert np.array_equal(other.astype(ml_dtypes.bfloat16).astype(np.float64), other), name
            same = np.count_nonzero((other == value) & (value != 0))
            assert same < max(0.05 * value.size, 4) or pattern == "offset", name
        assert len({array.tobytes() for array in (value, *drawn)}) == 3, name


def test_a_seed_leaves_the_case_s_id_and_the_positions_that_are_compared() -> None:
    other = replace(SMALL, seed=1)
    assert other.id == SMALL.id
    plain, drawn = compute(SMALL, constants()), compute(other, constants())
    for name, tensor in plain.tensors.items():
        assert np.array_equal(tensor.positions, drawn.tensors[name].positions)
    assert not np.array_equal(plain.tensors["output"].golden, drawn.tensors["output"].golden)


def test_a_frozen_golden_is_never_another_seed_s() -> None:
    with pytest.raises(ValueError, match=r"frozen for seed 0 .*not for seed 3"):
        read_golden(replace(SMALL, seed=3), read_golden_manifest(), constants())


@pytest.mark.release
def test_the_honest_one_passes_at_another_seed_and_the_report_says_so(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, *RUN, "--seed", "1", "--threads", "3")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "6 of 6 checks conform, seed 1" in ended.stdout
    report = ended.report
    assert (report["environment"]["seed"], report["environment"]["threads_per_worker"]) == (1, 3)
    assert report["implementations"][0]["settings"]["threads"] == 3
    assert {record["case"] for record in report["records"]} == {"pre-gelu/no-mask", "post-relu/padding-right"}
    shown = conform("explain", "--case", "pre-gelu/no-mask").stdout
    assert "pre-gelu/no-mask in float32, honest, seed 1" in shown
    assert "--seed 1 --threads 3" in shown


def test_the_frozen_goldens_are_seed_0_and_no_seed_is_mentioned(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, *RUN)
    assert ended.report["environment"]["seed"] == 0
    assert "seed 0" not in ended.stdout
    assert "--seed" not in conform("explain", "--case", "pre-gelu/no-mask").stdout


@pytest.mark.release
def test_goldens_learnt_by_heart_fail_at_another_seed(conform: Callable, fake: Callable) -> None:
    folder = fake("crammer", MEMORISED)
    assert conform("run", "--impl", folder, *RUN).status == 0
    ended = conform("run", "--impl", folder, *RUN, "--seed", "1", diagnosed=False)
    assert ended.status == 1
    assert set(ended.outcomes()) == {"fail"}
    again = conform(*_repeat(conform("explain").stdout), diagnosed=False)
    assert again.status == 1
    assert again.report["environment"]["seed"] == 1


@pytest.mark.release
def test_a_bug_is_named_and_a_declared_one_verified_at_another_seed(conform: Callable, fake: Callable) -> None:
    asked = [f"pre-gelu/{name}" for name in ("padding-right", "extreme-logits", "low-variance", "no-mask")]
    cases = (*(word for name in asked for word in ("--case", name)), "--dtype", "float32", "--seed", "1")
    ended = conform("run", "--impl", fake("epsilon", EPSILON), *cases)
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["norm-eps-1e-3"])
    entry = '[{deviation: norm-eps-1e-3, reason: "known and accepted", link: "https://example.org"}]'
    declared = conform("run", "--impl", fake("known", EPSILON, deviations=entry, checks="[output, stages]"), *cases)
    assert declared.status == 0, declared.stdout
    assert set(declared.outcomes("output")) == set(declared.outcomes("stages")) == {"deviates"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "-1"], "Invalid value for '--seed': -1 is not in the range x>=0"),
        (["--seed", "x"], "Invalid value for '--seed': 'x' is not a valid seed"),
        (["--seed", "1.5"], "Invalid value for '--seed'"),
        (["--threads", "0"], "Invalid value for '--threads': 0 is not in the range x>=1"),
        (["--threads", "many"], "Invalid value for '--threads'"),
    ],
)
def test_what_is_no_seed_and_no_thread_count(conform: Callable, honest: Path, arguments: list[str], said: str) -> None:
    ended = conform("run", "--impl", honest, *RUN, *arguments)
    assert ended.status == 2
    assert said in ended.stderr
    assert not (ended.out / "report.json").exists()


def _repeat(explained: str) -> list[str]:
    [line] = [line for line in explained.splitlines() if line.startswith("Repeat: conform ")]
    return line.removeprefix("Repeat: conform ").split()
