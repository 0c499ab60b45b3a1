"""Epsilons are numbers: the one that a norm was seen to have is measured, and named."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from products import of_a_release

from encoder_conformance.commands.run.update import update_declared
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

LAYERS = ("post-gelu-bert", "pre-rms-silu", "pre-gelu", "post-relu")
"""Epsilons 1e-12, 1e-6 and 1e-5."""
CASES = [f"{layer}/{situation}" for layer in LAYERS for situation in ("low-variance", "no-mask")]


@cache
def cases() -> list[tuple[Case, Expected]]:
    manifest = read_golden_manifest()
    return [(case := load().cases[name], read_golden(case, manifest, constants())) for name in CASES]


def seen(
    epsilon: float,
    dtype: str = "float32",
    norms: tuple[str, ...] = ("norm1", "norm2"),
    beside: tuple[str, ...] = (),
    show: tuple[str, ...] | None = None,
) -> list[Observation]:
    """What a layer gives whose norms have this epsilon, whatever they were told, and these deviations beside it."""
    found, own = [], float(np.dtype(dtype).type(epsilon))
    for case, expected in cases():
        wrong = deviant(case, [catalogue()[name] for name in beside])
        given = replace(wrong.given, epsilons=dict.fromkeys(norms, own))
        made = forward(wrong.layer, given, Arithmetic(np.dtype(dtype)))
        answers = {name: made[name].astype(dtype) for name in show or stages(case.layer)}
        check = "output" if show else "stages"
        outcome = judge(check, tuple(answers), answers, expected, FORMATS[dtype]).outcome
        found.append(observation_of(case, expected, FORMATS[dtype], answers, failed=outcome != Outcome.PASS))
    return found


@pytest.mark.parametrize(
    ("epsilon", "dtype", "norms", "said"),
    [
        (1e-5, "float32", ("norm1", "norm2"), "Norm epsilon is 1.00e-05 where the layer says 1e-12 and 1e-06"),
        of_a_release(
            1e-5, "float64", ("norm1", "norm2"), "Norm epsilon is 1.00e-05 where the layer says 1e-12 and 1e-06"
        ),
        of_a_release(
            2.3e-4,
            "float32",
            ("norm1", "norm2"),
            "Norm epsilon is 2.30e-04 where the layer says 1e-12, 1e-06 and 1e-05",
        ),
        of_a_release(1.2345e-4, "float32", ("norm1", "norm2"), "Norm epsilon is 1.23450"),
        (3e-5, "float64", ("norm1",), "The epsilon of norm1 is 3.00e-05 where the layer says"),
        of_a_release(3e-4, "float32", ("norm2",), "The epsilon of norm2 is 3.00e-04 where the layer says"),
        # As an ONNX attribute has it, in a layer of doubles.
        of_a_release(
            float(np.float32(1e-3)), "float64", ("norm1", "norm2"), "Norm epsilon is float32's 1.00e-03 where the layer"
        ),
    ],
)
def test_a_fixed_epsilon_is_measured(epsilon: float, dtype: str, norms: tuple[str, ...], said: str) -> None:
    diagnosis = diagnose(Failing("fixed", dtype), seen(epsilon, dtype, norms))
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert said in diagnosis_text(diagnosis)
    [measured] = diagnosis.measured
    assert abs(measured.value - epsilon) <= 3 * measured.uncertainty + np.spacing(FORMATS[dtype].numpy.type(epsilon))


def test_the_double_is_told_from_float32s_decimal() -> None:
    """Plain nn.LayerNorm(D) in a float64 layer that says 1e-5."""
    of_1e_5 = [
        observation
        for observation in seen(1e-5, "float64")
        if observation.case.layer.layer in ("pre-gelu", "post-relu")
    ]
    diagnosis = diagnose(Failing("double", "float64"), of_1e_5)
    assert diagnosis.confidence == "explained"
    said = "Norm epsilon is the double 1e-05, where the layer's is float32's 1e-05, 9.99999974737875e-06 (clause L-2)."
    assert diagnosis.sentences == (said,)


@pytest.mark.release
def test_in_float32_the_two_are_one() -> None:
    assert "L-2" not in diagnosis_text(diagnose(Failing("fixed", "float32"), seen(1e-5)))


@pytest.mark.release
def test_an_epsilon_is_measured_behind_an_output_alone() -> None:
    diagnosis = diagnose(Failing("fused", "float32"), seen(3e-5, show=("output",)))
    assert diagnosis.confidence == "explained"
    assert diagnosis.measured[0].value == pytest.approx(3e-5, rel=1e-6)


@pytest.mark.release
def test_an_epsilon_is_measured_beside_another_cause() -> None:
    diagnosis = diagnose(Failing("both", "float32"), seen(3e-5, beside=("value-bias-missing",)))
    assert (diagnosis.confidence, set(diagnosis.deviations)) == ("explained", {"norm-epsilon", "value-bias-missing"})


@pytest.mark.parametrize(
    "name", ["norm-eps-1e-3", *map(of_a_release, ("norm-eps-12", "norm-eps-outside-root", "norm-eps-missing"))]
)
def test_what_the_catalogue_has_keeps_its_name(name: str) -> None:
    diagnosis = diagnose(Failing("known", "float32"), seen_with(name))
    assert (diagnosis.confidence, diagnosis.deviations, diagnosis.measured) == ("explained", (name,), ())


def seen_with(name: str) -> list[Observation]:
    found = []
    for case, expected in cases():
        wrong = deviant(case, [catalogue()[name]]).stages(Arithmetic(np.float32))
        answers = {stage: wrong[stage].astype(np.float32) for stage in stages(case.layer)}
        outcome = judge("stages", tuple(answers), answers, expected, FORMATS["float32"]).outcome
        found.append(observation_of(case, expected, FORMATS["float32"], answers, failed=outcome != Outcome.PASS))
    return found


@pytest.mark.release
def test_no_epsilon_is_made_of_another_fault_of_a_norm() -> None:
    """Rows off by a scale that is no epsilon's: each row by another."""
    diagnosis = diagnose(Failing("unbiased", "float32"), seen_with("norm-unbiased-variance"))
    assert diagnosis.measured == ()


FIXED = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-4})})
    return held
"""


@pytest.mark.release
def test_a_measured_epsilon_is_in_the_report_and_declared_nowhere(conform: Callable, fake: Callable) -> None:
    folder = fake("fixed", FIXED, checks="[output]")
    asked = [word for name in CASES[-4:] for word in ("--case", name)]
    ended = conform("run", "--impl", folder, *asked, "--dtype", "float32")
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["norm-epsilon"])
    assert diagnosis["measured"][0]["value"] == pytest.approx(1e-4, rel=1e-6)
    assert "Norm epsilon is 1.00e-04 where the layer says 1e-05" in ended.stdout
    assert update_declared(read_report(ended.out), read_implementation(folder), folder, {}.get) == []


LARGE = ["post-gelu-bert/low-variance", "vit-base/vision-no-mask"]
"""Of a small layer that says 1e-12, and of a large one that says 1e-6."""


@pytest.mark.release
def test_the_epsilon_of_a_large_layer_is_named_beside_small_ones(conform: Callable, fake: Callable) -> None:
    folder = fake("fixed", FIXED, checks="[output]")
    ended = conform("run", "--impl", folder, *(w for name in LARGE for w in ("--case", name)), "--dtype", "float32")
    [diagnosis] = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "explained"
    assert diagnosis["cases"] == LARGE
    assert "Norm epsilon is 1.00e-04 where the layer says 1e-12 and 1e-06" in ended.stdout


OTHER_IN_LARGE = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    epsilon = 1e-4 if self.layer.d_model <= 64 else 3e-3
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": epsilon})})
    return held
"""


@pytest.mark.release
def test_an_epsilon_that_is_not_a_large_layers_does_not_explain_it(conform: Callable, fake: Callable) -> None:
    folder = fake("two", OTHER_IN_LARGE, checks="[output]")
    ended = conform("run", "--impl", folder, *(w for name in LARGE for w in ("--case", name)), "--dtype", "float32")
    [diagnosis] = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "closest"
    assert "Not accounted for: vit-base/vision-no-mask (" in ended.stdout
