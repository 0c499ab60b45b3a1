"""No name is the closest that something observed refutes: chance, a size, or what another format shows."""

from collections.abc import Sequence

import numpy as np
import pytest
from products import of_a_release
from wrong_layers import FLOAT32, Wrong, observed

from encoder_conformance.diagnosis.closest import is_refuted
from encoder_conformance.diagnosis.diagnose import Failing, diagnose_chosen
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.noisy_predictions import NoisyStage, PredictionResult, errs_alike, prediction_result
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.forms.forward_only import narrowed
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.load import constants, load

CASES = [load().cases[f"post-relu/{name}"] for name in ("mask-per-head", "no-mask")]


def diagnosed(stage: str, wrong: Wrong, dtype: Format = FLOAT32, *, output_only: bool = True) -> Diagnosis:
    """What the catalogue makes of it, where nothing said yet that answers repeat, and the layer can be asked again."""

    def ask(cases: Sequence[Case]) -> list[Observation]:
        given = {"output_only": True, "dtype": dtype}
        return [observed(case, {stage: wrong}, expected=compute(case, constants()), **given) for case in cases]

    seen = [observed(case, {stage: wrong}, output_only=output_only, dtype=dtype) for case in CASES]
    assert any(each.failed for each in seen)
    return diagnose_chosen(Failing("mine", dtype.name, ask=ask), seen, in_catalogue_alone=True)


TAIL = "exp(attention_scores) * mask / (54 + sum(exp(attention_scores) * mask, -1))"


def of_bits(bits: int, name: str) -> Wrong:
    """A map of an operand in so many bits, by one scale for the batch."""
    step = f"(largest(abs({name})) / {2 ** (bits - 1) - 1})"
    return lambda text: text.replace(f"{name} @", f"(round({name} / {step}) * {step}) @")


UNSEEN: dict[str, tuple[str, Wrong]] = {
    "a constant in the sum": ("attention_weights", lambda text: TAIL),
    "two keys more, of which nothing comes": ("attention_weights", lambda text: TAIL.replace("54", "2")),
    "keys up to a whole block": ("attention_weights", lambda text: TAIL.replace("54", "(-sequence_length % 8)")),
    "8 bits by one scale for the batch": ("query", of_bits(8, "x")),
    "6 bits by one scale for the batch": ("ffn_hidden", of_bits(6, "norm1")),
    "8 bits of what follows": ("ffn_output", of_bits(8, "ffn_activation")),
    "softmax of softmax": ("attention_weights", lambda text: f"softmax({text}, mask)"),
    "clipped": ("attention_scores", lambda text: f"minimum(maximum({text}, -0.37), 0.41)"),
    "symmetric": ("attention_scores", lambda text: f"0.5 * ({text}) + 0.5 * transpose({text})"),
    "another item": ("residual1", lambda text: f"({text}) + 0.1 * roll({text}, 1, 0)"),
    "a feature's wave": ("value", lambda text: f"({text}) * (1 + 0.002 * cos(7 * index({text}, -1)))"),
}
DAILY = ("a constant in the sum",)


@pytest.mark.release
@pytest.mark.parametrize("name", [each if each in DAILY else of_a_release(each) for each in UNSEEN])
@pytest.mark.parametrize("dtype", ["float32", of_a_release("float64")])
def test_what_no_catalogue_has_is_no_rounding_and_no_dropout(name: str, dtype: str) -> None:
    assert diagnosed(*UNSEEN[name], FORMATS[dtype]).confidence == "unknown"


def test_sizes_are_told_apart_in_float64() -> None:
    """Both the error and the predicted scatter were 1e12 σ, and so in the ratio of 1."""
    found = [
        Evidence(observed(case, {UNSEEN["clipped"][0]: UNSEEN["clipped"][1]}, dtype=FORMATS["float64"]))
        for case in CASES
    ]
    errors = [piece.errors_of([catalogue()["attend-in-bfloat16"]]) for piece in found]
    ratios = np.concatenate([each.rms / np.hypot(1.0, each.scatter) for each in errors])
    assert not np.any(ratios == 1.0)


def planted(name: str, dtype: str, *, output_only: bool = False) -> list[Observation]:
    found = []
    for case in CASES:
        expected = read_golden(case, read_golden_manifest(), constants())
        wrong = deviant(case, [catalogue()[name]] if name else []).stages(Arithmetic(FORMATS[dtype].numpy))
        kept = {"output": wrong["output"]} if output_only else wrong
        answers = {stage: np.asarray(value).astype(dtype) for stage, value in kept.items()}
        found.append(observation_of(case, expected, FORMATS[dtype], answers, failed=True))
    return found


@pytest.mark.release
def test_a_rounding_behind_an_output_is_known_by_what_it_does_to_each_value() -> None:
    seen = planted("bfloat16-inside", "float32", output_only=True)
    diagnosis = diagnose_chosen(Failing("mine", "float32", repeats="same"), seen, in_catalogue_alone=True)
    assert (diagnosis.confidence, diagnosis.deviations) == ("closest", ("bfloat16-inside",))


def test_a_rounding_that_another_format_does_not_show_is_not_there() -> None:
    rounding = (catalogue()["attend-in-bfloat16"],)
    assert is_refuted(rounding, [Evidence(each) for each in planted("", "float32")])
    assert not is_refuted(rounding, [Evidence(each) for each in planted("attend-in-bfloat16", "float32")])


@pytest.mark.parametrize(("times", "noise", "alike"), [(1.0, 0.5, True), (1.0, 5.0, False), (5.0, 0.5, False)])
def test_what_errs_by_more_than_is_predicted_has_another_source(times: float, noise: float, alike: bool) -> None:
    """Though it may err the same way: a coarser rounding of the same numbers."""
    draw = np.random.default_rng(0)
    plain, due = draw.normal(size=600), 1e-3 * draw.normal(size=600)
    seen = plain + times * due + noise * 1e-3 * draw.normal(size=600)
    assert errs_alike(seen, plain + due, plain) is alike


def test_one_case_that_errs_as_a_rounding_would_is_no_rounding() -> None:
    rounding = catalogue()["bfloat16-inside"]
    pieces = [Evidence(each) for each in (planted("bfloat16-inside", "float32", output_only=True)[0], coarse(CASES[1]))]
    assert Match.of((rounding,), pieces[:1]).seen_in_values
    assert not Match.of((rounding,), pieces[1:]).seen_in_values
    assert not Match.of((rounding,), pieces).seen_in_values


def coarse(case: Case) -> Observation:
    """The output of a layer whose maps take 8-bit inputs, by one scale for the batch."""

    maps = {"query": "x", "key": "x", "value": "x", "ffn_hidden": "norm1", "ffn_output": "ffn_activation"}
    return observed(case, {stage: of_bits(8, name) for stage, name in maps.items()}, output_only=True)


@pytest.mark.parametrize(("bits", "true"), [(8, True), (6, False)])
def test_a_coarser_grid_is_another_format(bits: int, true: bool) -> None:
    plain = np.random.default_rng(0).normal(size=200)
    mantissa, exponent = np.frexp(plain)
    seen = np.ldexp(np.rint(mantissa * 2.0**bits) / 2.0**bits, exponent)
    assert np.array_equal(seen, narrowed(seen, "bfloat16"))
    sigma, index = np.full(200, 1e-8), np.arange(200)[:, None]
    result = prediction_result(
        "in-bfloat16", NoisyStage(seen, plain, narrowed(plain * 1.001, "bfloat16"), sigma, index, None)
    )
    assert result is not None
    assert result.true is true


def test_elements_that_a_right_layer_does_not_round_are_not_divided_by_their_rounding() -> None:
    plain = np.linspace(1.0, 2.0, 16)
    index = np.arange(16)[:, None]
    stage = NoisyStage(plain * 1.1, plain, plain, np.zeros(16), index, None)
    assert prediction_result("dropout", stage) == PredictionResult(False)
