"""A step that no catalogue has is identified by its equation, and never by a name that is not so."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.deviations.simulate import simulate
from encoder_conformance.diagnosis.diagnose import diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.from_output import output_samples
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.judge.observation import Observation, observation_of
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward, given
from encoder_conformance.report.terminal import diagnosis_text
from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stage_equations import stage_equations
from encoder_conformance.spec.stages import stages
from encoder_conformance.spec.yaml_file import read_model

FLOAT32 = FORMATS["float32"]
SITUATIONS = ("padding-right", "mask-per-head", "no-mask", "large-mean")
CASES = [load().cases[f"{layer}/{situation}"] for layer in ("pre-gelu", "post-relu") for situation in SITUATIONS]
Wrong = Callable[[str], str]


def observed(case: Case, wrong: dict[str, Wrong], *, output_only: bool = False) -> Observation:
    """What a float32 layer shows that computes these stages by another equation."""
    specified = stage_equations(case.layer)
    equations = {stage: Equation(change(specified[stage].text)) for stage, change in wrong.items()}
    what = given(case)
    narrow = {name: value.astype(np.float32) for name, value in what.parameters.items()}
    what = replace(what, equations=equations, x=what.x.astype(np.float32), parameters=narrow)
    with np.errstate(all="ignore"):
        shown = forward(case.layer, what, Arithmetic(np.float32))
    names = ("output",) if output_only else stages(case.layer)
    answers = {name: np.asarray(shown[name]).astype(np.float32) for name in names}
    expected = read_golden(case, read_golden_manifest(), constants())
    verdict = judge("output" if output_only else "stages", names, answers, expected, FLOAT32, constants())
    return observation_of(case, expected, FLOAT32, answers, failed=verdict.outcome is not Outcome.PASS)


def diagnosed(*, output_only: bool = False, **wrong: Wrong) -> Diagnosis:
    seen = [observed(case, wrong, output_only=output_only) for case in CASES]
    return diagnose("mine", "float32", seen, repeats="same")


@pytest.mark.parametrize(
    ("stage", "wrong", "found"),
    [
        ("value", lambda text: f"{text} + 0.01 * key", "+ 0.01 * key"),
        ("residual2", lambda text: f"0.5 * {text.replace(' + ', ' + 2 * ')}", None),
        ("attention_scores", lambda text: f"4 * tanh(({text}) / 4)", "4 * tanh(query_heads @ transpose(key_heads)"),
        ("ffn_activation", lambda text: "ffn_hidden * sigmoid(1.5 * ffn_hidden)", "sigmoid(1.5 * ffn_hidden)"),
        ("norm2", lambda text: text.replace("* norm2.gain", "* (1 + norm2.gain)"), "* (1 + norm2.gain) + norm2.shift"),
        ("attention_weights", lambda text: "softmax(attention_scores + bias, roll(mask, 1, 0))", "flip(mask, 0)"),
        ("context_merged", lambda text: "merge_heads(roll(context, 1, 1))", "merge_heads(roll(context, 1, -3))"),
        ("query", lambda text: text.replace("query.bias", "key.bias"), "attention.query.weight + attention.key.bias"),
    ],
    ids=["a term", "coefficients", "a cap", "an activation", "a gain", "a mask", "heads", "half a mistake"],
)  # fmt: skip
def test_one_step_is_identified_by_its_equation(stage: str, wrong: Wrong, found: str | None) -> None:
    diagnosis = diagnosed(**{stage: wrong})
    assert diagnosis.confidence == "explained"
    assert {each.stage for each in diagnosis.equations} == {stage}
    assert diagnosis.left_open == ()
    for each in diagnosis.equations:
        assert each.rms < 2 < 100 < each.specified_rms
        assert found is None or found in each.found
    text = diagnosis_text(diagnosis)
    assert f"{stage} = " in text
    assert "specified " in text


def test_causes_in_different_steps_come_out_one_by_one() -> None:
    diagnosis = diagnosed(
        key=lambda text: text.replace("key.bias", "query.bias"),
        attention_output=lambda text: f"roll({text}, 1, -1)",
        residual2=lambda text: f"{text} + 0.25 * x",
    )
    assert diagnosis.confidence == "explained"
    assert [*dict.fromkeys(each.stage for each in diagnosis.equations)] == ["key", "attention_output", "residual2"]


def test_where_no_equation_is_found_it_says_what_was_found_out() -> None:
    """An activation that is no single edit away, beside a step that is identified."""
    strange = diagnosed(
        residual1=lambda text: f"{text} + attention_output",
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden) + 0.1 * cos(3 * ffn_hidden)",
    )
    assert strange.confidence != "explained"
    assert {each.stage for each in strange.equations} == {"residual1"}
    assert strange.left_open == ("ffn_activation",)
    assert "ffn_activation follows one curve of ffn_hidden, to" in " ".join(strange.observed)
    assert "Left open: ffn_activation." in diagnosis_text(strange)


@pytest.mark.parametrize(
    ("stage", "wrong", "found"),
    [
        ("attention_output", lambda text: f"{text} + norm2.shift", "+ norm2.shift"),
        ("attention_output", lambda text: f"roll({text}, 1, 2)", "roll(context_merged @"),
        ("ffn_activation", lambda text: "maximum(ffn_hidden, 0) ** 2", "maximum(ffn_hidden, 0) ** 2"),
    ],
    ids=["a term", "an order", "an activation"],
)
def test_a_step_is_identified_from_the_output_alone(stage: str, wrong: Wrong, found: str) -> None:
    diagnosis = diagnosed(output_only=True, **{stage: wrong})
    assert diagnosis.confidence == "explained"
    assert {each.stage for each in diagnosis.equations} == {stage}
    assert all(found in each.found for each in diagnosis.equations)
    assert "the output alone cannot tell" in diagnosis_text(diagnosis)


def test_two_causes_behind_one_output_are_not_explained_by_one() -> None:
    """A false "explained" is worse than a miss."""
    diagnosis = diagnosed(
        output_only=True,
        residual1=lambda text: f"{text} + 0.7 * value",
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden)",
    )
    assert diagnosis.confidence != "explained"


def test_a_norm_that_gives_its_shift_alone_has_no_epsilon_that_could_be_measured() -> None:
    """The epsilon that fits it best is infinite, and no layer has that."""
    diagnosis = diagnosed(output_only=True, norm2=lambda text: "0 * x + norm2.shift")
    assert not diagnosis.measured


def test_a_large_layer_is_not_played_to_its_output_twenty_thousand_times() -> None:
    case = load().cases["post-relu-512/no-mask"]
    expected = read_golden(case, read_golden_manifest(), constants())
    answers = {"output": np.zeros(case.x_shape, np.float32)}
    assert output_samples([Evidence(observation_of(case, expected, FLOAT32, answers, failed=True))]) == {}


def test_not_a_number_is_said() -> None:
    lost = diagnosed(ffn_activation=lambda text: f"{text} + log(ffn_hidden - 2) * 0 + 0.1 * cos(3 * ffn_hidden)")
    assert lost.confidence != "explained"
    assert "ffn_activation holds NaN where the specification has numbers" in diagnosis_text(lost)


def test_a_name_of_the_catalogue_comes_first() -> None:
    named = diagnosed(attention_scores=lambda text: "query_heads @ transpose(key_heads)")
    assert (named.confidence, named.equations) == ("explained", ())
    assert named.deviations == ("scale-missing",) or "scale" in named.deviations[0]


HALF = """
def build(self, layer, parameters, dtype):
    from encoder_conformance.spec.equation import Equation
    self.equations = {"residual1": Equation("x + 0.5 * attention_output")}
    return super().build(layer, parameters, dtype)
"""


def test_a_run_states_the_equation_and_explain_writes_it_down(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    folder = fake("halving", HALF, checks="[output, stages]")
    cases = [word for case in CASES[:3] for word in ("--case", case.id)]
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    assert ended.status == 1
    assert "halving float32: explained: residual1 = x + 0.5 * attention_output (" in ended.stdout
    assert "specified x + attention_output: " in ended.stdout
    target = tmp_path / "attention-halved.yaml"
    written = conform("explain", "--write-deviation", target)
    assert written.status == 0, written.stderr
    deviation = read_model(target, Deviation)
    assert deviation.patch.stages == {"residual1": {"x + attention_output": "x + 0.5 * attention_output"}}
    wrong, right = simulate(CASES[0], [deviation]), simulate(CASES[0], [])
    np.testing.assert_allclose(wrong["residual1"], CASES[0].x() + 0.5 * right["attention_output"])


def test_there_is_nothing_to_write_where_nothing_was_identified(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    lie = "def output(self, x, masks):\n    out = super().output(x, masks)\n    out[..., ::5] *= 3\n    return out"
    conform("run", "--impl", fake("shifted", lie, checks="[output]"), "--case", CASES[0].id, "--dtype", "float32")
    refused = conform("explain", "--write-deviation", tmp_path / "nothing.yaml")
    assert refused.status == 2
    assert "no equation was identified for this failure" in refused.stderr
    assert not (tmp_path / "nothing.yaml").exists()
    misnamed = conform("explain", "--write-deviation", tmp_path / "My Bug.yaml")
    assert misnamed.status == 2
    assert "cannot be the name of a deviation: My Bug.yaml" in misnamed.stderr


IGNORING = """
def build(self, layer, parameters, dtype):
    from encoder_conformance.spec.equation import Equation
    self.equations = {"attention_weights": Equation("softmax(attention_scores + bias, %s)")}
    return super().build(layer, parameters, dtype)
"""
PADDED = (
    "pre-gelu/padding-right",
    "pre-gelu/padding-2d",
    "post-relu/padding-3d",
    "pre-gelu/no-mask",
    "pre-gelu/causal",
)


@pytest.mark.parametrize("checks", ["[output, stages]", "[output]"])
def test_what_padding_holds_decides_nothing(
    conform: Callable[..., Any], fake: Callable[..., Path], checks: str
) -> None:
    """The fakes set x to 0 at padded positions, as templates and users do: a wrong mask lets that be seen."""
    folder = fake("ignoring", IGNORING % "mask | ~mask", checks=checks)
    ended = conform(
        "run", "--impl", folder, *(word for case in PADDED for word in ("--case", case)), "--dtype", "float32"
    )
    [diagnosis] = [each for each in ended.report["diagnoses"] if each["confidence"] != "seen"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["mask-ignored"])
    assert diagnosis["rms"] < 2


def test_an_equation_accounts_for_the_invariants_that_it_breaks(
    conform: Callable[..., Any], fake: Callable[..., Path]
) -> None:
    folder = fake("inverting", IGNORING % "roll(mask, 1, -1)", checks="[output, stages]")
    cases = ("pre-gelu/causal", "pre-gelu/mask-per-head", "pre-gelu/invariant-causality", "pre-gelu/no-mask")
    ended = conform(
        "run", "--impl", folder, *(word for case in cases for word in ("--case", case)), "--dtype", "float32"
    )
    assert "fail" in ended.outcomes("invariant")
    [diagnosis] = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "explained"
