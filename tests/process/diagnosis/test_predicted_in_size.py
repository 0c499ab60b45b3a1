"""What is predicted in size only is no answer because its size fits: what else it predicts has to come true."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from products import of_a_release

from encoder_conformance.diagnosis.dependence import Repeats
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue, is_noisy
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.forms.forward_only import narrowed
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.tape import Node
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

SMALL = [
    f"{layer}/{name}" for layer in ("pre-gelu", "post-relu") for name in ("padding-right", "low-variance", "no-mask")
]
FLOAT32 = FORMATS["float32"]
Wrong = Callable[[str, Array], Array]
"""(a stage's name, its right value) → what is given in its place, and gone on from."""


@cache
def small_cases() -> list[tuple[Case, Expected]]:
    manifest, cases = read_golden_manifest(), load().cases
    return [(cases[name], read_golden(cases[name], manifest, constants())) for name in SMALL]


def seen(wrong: Wrong, *ids: str, show: tuple[str, ...] | None = None) -> list[Observation]:
    """What a float32 layer gives whose stages are `wrong`, beside these deviations."""
    found = []
    for case, expected in small_cases():
        layer = deviant(case, [catalogue()[name] for name in ids])
        shown: dict[str, Array] = {}

        def onward(name: str, stage: Node, shown: dict[str, Array] = shown) -> Node:
            shown[name] = wrong(name, stage.value)
            return Node(shown[name])

        given = forward(layer.layer, layer.given, Arithmetic(np.float32, draw=99), onward)
        answers = {name: np.asarray({**given, **shown}[name], np.float32) for name in show or stages(case.layer)}
        last = "residual2" if case.layer.norm.placement == "pre" else "norm2"
        answers["output"] = np.asarray(shown.get(last, given["output"]), np.float32)
        check = "stages" if show is None else "output"
        outcome = judge(check, tuple(answers), answers, expected, FLOAT32).outcome
        found.append(observation_of(case, expected, FLOAT32, answers, failed=outcome != Outcome.PASS))
    return found


def right(name: str, value: Array) -> Array:
    return value


def wavy(stage: str, size: float) -> Wrong:
    """Deterministic, smooth, and in no catalogue: a factor that differs from element to element."""

    def wrong(name: str, value: Array) -> Array:
        wave = 1 + size * np.sin(0.1 + np.arange(value.size)).reshape(value.shape)
        return np.asarray(value * wave, value.dtype) if name == stage else value

    return wrong


def named(diagnosis: Diagnosis) -> list[str]:
    return [
        *diagnosis.deviations,
        *diagnosis.runner_up,
        *(name for twin in diagnosis.indistinguishable for name in twin),
    ]


UNFORESEEN = [
    of_a_release("attention_weights", 0.3, "same"),  # as large as dropout's scatter
    of_a_release("attention_weights", 0.3, "unknown"),
    of_a_release("ffn_output", 0.3, "differ"),
    of_a_release("norm1", 2.0**-12, "same"),  # as large as float16's rounding
    of_a_release("norm2", 2.0**-9, "unknown"),  # as bfloat16's
    of_a_release("query", 2.0**-12, "differ"),
    of_a_release("context", 2.0**-9, "same"),
]


@pytest.mark.parametrize(("stage", "size", "repeats"), UNFORESEEN)
def test_no_size_explains_what_is_wrong_in_an_unforeseen_way(stage: str, size: float, repeats: Repeats) -> None:
    diagnosis = diagnose(Failing("wavy", "float32", repeats=repeats), seen(wavy(stage, size)))
    assert diagnosis.confidence != "explained", diagnosis_text(diagnosis)
    assert not any(is_noisy(catalogue()[name]) for name in diagnosis.deviations)
    if diagnosis.confidence == "unknown":
        assert f"First wrong stage: {stage}." in diagnosis_text(diagnosis)


@pytest.mark.release
def test_noise_that_is_drawn_anew_is_no_dropout() -> None:
    """Two answers differ, and the size fits, but no element is 0 and the others are not scaled."""
    draw = np.random.default_rng(0)

    def noise(name: str, value: Array) -> Array:
        scattered = value * (1 + 0.33 * draw.standard_normal(value.shape))
        return np.asarray(scattered, value.dtype) if name in ("attention_weights", "ffn_output") else value

    diagnosis = diagnose(Failing("noisy", "float32", repeats="differ"), seen(noise))
    assert diagnosis.confidence != "explained", diagnosis_text(diagnosis)


DROPPED = ("dropout-left-on", "attention-dropout-left-on", "attention-dropout-broadcast", "ffn-dropout-left-on")


@pytest.mark.release
@pytest.mark.parametrize("name", DROPPED)
def test_dropout_is_explained_where_two_answers_differ(name: str) -> None:
    observations = seen(right, name)
    differ = diagnose(Failing("dropping", "float32", repeats="differ"), observations)
    assert (differ.confidence, differ.deviations) == ("explained", (name,))
    assert "two answers to one question differ" in diagnosis_text(differ)
    unknown = diagnose(Failing("dropping", "float32"), observations)
    assert (unknown.confidence, unknown.deviations) == ("closest", (name,))
    same = diagnose(Failing("dropping", "float32", repeats="same"), observations)
    assert not set(named(same)) & set(DROPPED)


@pytest.mark.release
@pytest.mark.parametrize("count", [1, len(SMALL)])
def test_dropout_behind_the_output_alone_is_closest_at_most(count: int) -> None:
    """Its size is all that an output shows: what else would differ twice and be as large is not to be told from it."""
    observations = seen(right, "dropout-left-on", show=("output",))[:count]
    diagnosis = diagnose(Failing("fused", "float32", repeats="differ"), observations)
    assert diagnosis.confidence != "explained"


@pytest.mark.release
@pytest.mark.parametrize(
    "name",
    [
        "norm-in-float16",
        of_a_release("linear-in-tf32"),
        of_a_release("softmax-in-bfloat16"),
        of_a_release("bfloat16-inside"),
    ],
)
def test_a_narrow_format_is_explained_by_its_own_values(name: str) -> None:
    diagnosis = diagnose(Failing("narrow", "float32", repeats="same"), seen(right, name))
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert (name,) in {diagnosis.deviations, *diagnosis.indistinguishable}


@pytest.mark.release
def test_a_result_on_a_narrow_formats_grid_is_explained_wherever_it_rounds_inside() -> None:
    """A norm that also rounds its statistics is off by other values, of the same size, which bfloat16 has."""

    def wrong(name: str, value: Array) -> Array:
        return narrowed(value * np.float32(1 + 2.0**-9), "bfloat16") if name in ("norm1", "norm2") else value

    diagnosis = diagnose(Failing("narrow", "float32", repeats="same"), seen(wrong))
    assert (diagnosis.confidence, diagnosis.deviations) == ("explained", ("norm-in-bfloat16",))


@pytest.mark.release
def test_what_is_far_from_everything_is_unknown() -> None:
    """Half of the stages in line is no likeness where the rest is out by thousands of σ."""
    diagnosis = diagnose(Failing("far", "float32", repeats="same"), seen(wavy("ffn_activation", 0.1), "norm-eps-1e-3"))
    assert diagnosis.confidence == "unknown"
    assert "First wrong stage: norm1." in diagnosis_text(diagnosis)


WAVY = """
def stages(self, x, masks, run):
    shown = super().stages(x, masks, run)
    wave = 1 + 0.3 * np.sin(np.arange(shown["attention_weights"].size)).reshape(shown["attention_weights"].shape)
    return {**shown, "attention_weights": np.asarray(shown["attention_weights"] * wave, self.dtype)}
"""
DROPS = """
def stages(self, x, masks, run):
    shown = super().stages(x, masks, run)
    kept = np.random.default_rng().random(shown["ffn_output"].shape) >= 0.25
    shown["ffn_output"] = np.where(kept, shown["ffn_output"] / self.dtype.type(0.75), self.dtype.type(0))
    shown["residual2"] = shown["output"] = shown["residual1"] + shown["ffn_output"]
    return shown

def build(self, layer, parameters, dtype):
    return super().build(layer, parameters, np.dtype(dtype))

def output(self, x, masks, run):
    return self.stages(x, masks, run)["output"]
"""
"""A pre-norm layer that is never put into evaluation."""


def asking(*names: str) -> tuple[str, ...]:
    return (*(word for name in names for word in ("--case", name)), "--dtype", "float32")


PRE = ("pre-gelu/padding-right", "pre-gelu/no-mask")


@pytest.mark.release
def test_a_run_knows_that_answers_repeat(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("wavy", WAVY), *asking(*PRE, "pre-gelu/invariant-determinism"))
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["first_stage"]) == ("unknown", "attention_weights")


@pytest.mark.release
@pytest.mark.parametrize("cases", [PRE, of_a_release((*PRE, "pre-gelu/invariant-determinism"))])
def test_a_run_knows_that_answers_differ(conform: Callable, fake: Callable, cases: tuple[str, ...]) -> None:
    """Where no check asked one question twice, the diagnosis does."""
    ended = conform("run", "--impl", fake("drops", DROPS), *asking(*cases))
    diagnosis = next(each for each in ended.report["diagnoses"] if each["deviations"])
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["ffn-dropout-left-on"])
