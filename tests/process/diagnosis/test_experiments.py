"""An implementation that shows no stage is asked again, with a part of the layer switched off."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_layers import CASES, FLOAT32, Wrong, computed, observed

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.diagnosis.dependence import dependence
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.expected import NOTHING
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants


def diagnosed(**wrong: Wrong) -> tuple[Diagnosis, list[str]]:
    """The diagnosis, and the cases that it asked for."""
    asked = list[str]()

    def ask(cases: Sequence[Case]) -> list[Observation]:
        asked.extend(case.id for case in cases)
        return [observed(case, wrong, output_only=True, expected=compute(case, constants())) for case in cases]

    seen = [observed(case, wrong, output_only=True) for case in CASES]
    return diagnose(Failing("mine", "float32", repeats="same", ask=ask), seen), asked


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            {
                "residual1": lambda text: text.replace("attention_output", "0.5 * attention_output"),
                "ffn_activation": lambda text: "ffn_hidden * sigmoid(1.5 * ffn_hidden)",
            },
            id="residual and activation",
            marks=pytest.mark.release,
        ),
        pytest.param(
            {
                "attention_scores": lambda text: f"{text} * sqrt(head_dim) / sqrt(d_model)",
                "ffn_output": lambda text: text.replace("feed_forward.output.bias", "2 * feed_forward.output.bias"),
            },
            id="scale and bias",
            marks=pytest.mark.release,
        ),
        pytest.param(
            {
                "value": lambda text: text.replace("value.bias", "key.bias"),
                "attention_scores": lambda text: f"4 * tanh(({text}) / 4)",
            },
            id="value and scores",
            marks=pytest.mark.release,
        ),
    ],
)
def test_two_causes_behind_one_output_come_out_one_by_one(wrong: dict[str, Wrong]) -> None:
    diagnosis, asked = diagnosed(**wrong)
    assert asked
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert len({each.stage for each in diagnosis.equations}) == 2
    assert {each.stage for each in diagnosis.equations} & set(wrong)


def softmax_with_two_in_its_sum(text: str) -> str:
    scores = text.removeprefix("softmax(").removesuffix(", mask)")
    raised = f"where(mask, exp({scores} - largest({scores}, -1)), 0)"
    return f"{raised} / (2 + sum({raised}, -1))"


@pytest.mark.release
@pytest.mark.parametrize(
    ("stage", "wrong"),
    [
        pytest.param(  # without scores it is a value times a number
            "attention_weights", softmax_with_two_in_its_sum, id="a sum of a softmax"
        ),
        pytest.param(
            "ffn_output",
            lambda text: text.replace(
                "feed_forward.output.bias",
                "where(index(feed_forward.output.bias, -1) < d_model // 2, 3 * feed_forward.output.bias, "
                "feed_forward.output.bias)",
            ),
            id="a part of an operand",
        ),
    ],
)
def test_of_equations_that_a_part_of_the_layer_does_not_tell_apart_the_whole_says_which(
    stage: str, wrong: Callable[[str], str]
) -> None:
    diagnosis, asked = diagnosed(**{stage: wrong})
    assert asked
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)


@pytest.mark.release
def test_what_is_not_identified_is_narrowed_down() -> None:
    diagnosis, _ = diagnosed(
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden) + cos(3 * ffn_hidden)"
    )
    assert diagnosis.confidence != "explained"
    assert "Out of line where the output shows the feed-forward network" in diagnosis_text(diagnosis)


def test_what_an_unknown_step_depends_on_is_asked() -> None:
    """A residual that mixes the items of a batch, by more than any equation that is searched for."""
    wrong = {"residual1": lambda text: f"{text} + sin(3 * flip(x, 0) * cos(attention_output)) * tanh(x)"}

    def ask(cases: Sequence[Case]) -> list[Observation]:
        """Without goldens: answers are compared with each other."""
        given = [(case, computed(case, wrong)["output"].astype(np.float64)) for case in cases]
        return [Observation(case, FLOAT32, True, True, NOTHING, {}, {"output": output}) for case, output in given]

    said = " ".join(map(sentence, dependence([Evidence(observed(CASES[2], wrong))], ask)))
    assert "Asked again with one thing changed, the answer depends on the other items of the batch (" in said
    assert "on the order of the positions; on chance, or what was asked before (" in said


@pytest.mark.release
def test_a_coarse_grid_that_flips_with_the_order_of_a_sum_is_no_dependence() -> None:
    """Whatever is changed flips some values, as a rounding of x does."""
    wrong = {"residual1": lambda text: f"({text}) * 1.01"}

    def ask(cases: Sequence[Case]) -> list[Observation]:
        found = []
        for number, case in enumerate(cases):
            noise = np.random.default_rng(number).normal(size=case.x_shape) * 1e-6
            output = np.round((computed(case, wrong)["output"] + noise) * 512) / 512
            found.append(Observation(case, FLOAT32, True, True, NOTHING, {}, {"output": output}))
        return found

    claims = dependence([Evidence(observed(case, wrong)) for case in (CASES[0], CASES[2])], ask)
    assert [each for each in claims if each.kind == "depends" and "chance" not in str(each.values["on"])] == []


TWO = """
def build(self, layer, parameters, dtype):
    from encoder_conformance.spec.equation import Equation
    self.equations = {
        "residual1": Equation("x + 0.5 * attention_output"),
        "ffn_activation": Equation("ffn_hidden * sigmoid(1.5 * ffn_hidden)"),
    }
    return super().build(layer, parameters, dtype)
"""


@pytest.mark.release
def test_a_run_asks_a_live_worker_again(conform: Callable[..., Any], fake: Callable[..., Path]) -> None:
    folder = fake("twofold", TWO, checks="[output]")
    cases = [word for name in ("no-mask", "mask-per-head") for word in ("--case", f"post-relu/{name}")]
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    (diagnosis,) = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "explained", ended.stdout
    assert {each["stage"] for each in diagnosis["equations"]} in (
        {"residual1", "ffn_activation"},
        {"attention_output", "ffn_activation"},
    )
    assert "Found by asking again with parts of the layer switched off" in ended.stdout
    judged = [record for record in ended.report["records"] if record["outcome"] == "fail"]
    assert len(judged) == 2, "what was asked for the diagnosis is no check of the run"


@pytest.mark.release
def test_what_the_catalogue_explains_is_not_asked_again() -> None:
    diagnosis, asked = diagnosed(attention_scores=lambda text: text.replace("head_dim", "d_model"))
    assert (diagnosis.confidence, diagnosis.deviations) == ("explained", ("scale-by-d-model",))
    assert not asked


INTERRUPTING = """
def build(self, layer, parameters, dtype):
    import os
    import signal
    from encoder_conformance.spec.equation import Equation
    if not parameters["attention.output.weight"].any():
        os.kill(harness(), signal.SIGINT)
    self.equations = {"residual1": Equation("x + sin(attention_output) * attention_output")}
    return super().build(layer, parameters, dtype)
"""


@pytest.mark.release
def test_a_diagnosis_that_is_interrupted_leaves_those_before_it(conform: Callable[..., Any], fake: Callable) -> None:
    once = 'def output(self, x, masks, run):\n    return super().output(x, masks, run) * x.dtype.type(float("nan"))'
    first, second = fake("lost", once, checks="[output]"), fake("strange", INTERRUPTING, checks="[output]")
    impls = ("--impl", first, "--impl", second)
    ended = conform("run", *impls, "--case", "post-relu/no-mask", "--dtype", "float32")
    assert ended.status == 3
    assert ended.report["ended_by"] == "interrupt"
    assert {each["implementation"] for each in ended.report["diagnoses"]} == {"lost"}
