"""A step that no catalogue has is identified by its equation, and never by a name that is not so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_layers import CASES, FLOAT32, Wrong, observed

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.explanation import as_closest, unaccounted
from encoder_conformance.diagnosis.identify.from_output import output_samples
from encoder_conformance.judging.observation import observation_of
from encoder_conformance.judging.records import Diagnosis, StageEquation
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.stages import stages
from encoder_conformance.spec.yaml_file import read_model


def diagnosed(*, output_only: bool = False, **wrong: Wrong) -> Diagnosis:
    seen = [observed(case, wrong, output_only=output_only) for case in CASES]
    return diagnose(Failing("mine", "float32", repeats="same"), seen)


def later(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.release)  # a diagnosis each


@pytest.mark.parametrize(
    ("stage", "wrong", "found"),
    [
        later("value", lambda text: f"{text} + 0.01 * key", "+ 0.01 * key"),
        later("residual2", lambda text: f"0.5 * {text.replace(' + ', ' + 2 * ')}", None),
        later("attention_scores", lambda text: f"4 * tanh(({text}) / 4)", "4 * tanh(query_heads @ transpose("),
        later("ffn_activation", lambda text: "ffn_hidden * sigmoid(1.5 * ffn_hidden)", "sigmoid(1.5 * ffn_hidden)"),
        later("norm2", lambda text: text.replace("* norm2.gain", "* (1 + norm2.gain)"), "* (1 + norm2.gain) + norm2."),
        later("attention_weights", lambda text: "softmax(attention_scores + bias, roll(mask, 1, 0))", "flip(mask, 0)"),
        later("context_merged", lambda text: "merge_heads(roll(context, 1, 1))", "merge_heads(roll(context, 1, -3))"),
        later("query", lambda text: text.replace("query.bias", "key.bias"), "query.weight + attention.key.bias"),
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


@pytest.mark.release
def test_a_number_is_found_where_what_is_specified_is_nearer_than_any_start() -> None:
    """GELU is within a percent of x · sigmoid(1.7 x), and no start of the search is as near to 1.6."""
    wrong = {"ffn_activation": lambda text: "ffn_hidden * sigmoid(1.6 * ffn_hidden)"}
    cases = [load().cases[f"pre-gelu/{situation}"] for situation in ("no-mask", "padding-right", "low-variance")]
    diagnosis = diagnose(Failing("mine", "float32", repeats="same"), [observed(case, wrong) for case in cases])
    assert diagnosis.confidence == "explained"
    assert [each.found for each in diagnosis.equations] == ["ffn_hidden * sigmoid(1.6 * ffn_hidden)"]


@pytest.mark.release
def test_causes_in_different_steps_come_out_one_by_one() -> None:
    diagnosis = diagnosed(
        key=lambda text: text.replace("key.bias", "query.bias"),
        attention_output=lambda text: f"roll({text}, 1, -1)",
        residual2=lambda text: f"{text} + 0.25 * x",
    )
    assert diagnosis.confidence == "explained"
    assert [*dict.fromkeys(each.stage for each in diagnosis.equations)] == ["key", "attention_output", "residual2"]


def test_what_an_explanation_leaves_out_elsewhere_is_found() -> None:
    """A case that the diagnosis was not shown, with one more thing wrong; and one without."""
    halved = {"residual1": lambda text: text.replace("attention_output", "0.5 * attention_output")}
    both = {**halved, "value": lambda text: text.replace("value.bias", "key.bias")}
    equation = StageEquation(
        stage="residual1",
        specified="x + attention_output",
        found="x + 0.5 * attention_output",
        rms=0.5,
        specified_rms=1e6,
        cases=("pre-gelu/causal",),
    )
    explained = Diagnosis(
        implementation="mine",
        dtype="float32",
        confidence="explained",
        first_stage="residual1",
        cases=equation.cases,
        equations=(equation,),
    )
    case = CASES[2]
    assert unaccounted(explained, [observed(case, halved)], None) == []
    [left] = unaccounted(explained, [observed(case, both)], None)
    assert left.observation.case.id == case.id
    said = as_closest(explained, {left.observation.case.id: left.rms})
    assert said.confidence == "closest"
    assert f"Not accounted for: {case.id} ({left.rms:.2g} σ)." in diagnosis_text(said)


@pytest.mark.release
def test_where_no_equation_is_found_it_says_what_was_found_out() -> None:
    """An activation that is no single edit away, beside a step that is identified."""
    strange = diagnosed(
        residual1=lambda text: f"{text} + attention_output",
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden) + 0.1 * cos(3 * ffn_hidden)",
    )
    assert strange.confidence != "explained"
    assert {each.stage for each in strange.equations} == {"residual1"}
    assert strange.left_open == ("ffn_activation",)
    assert "ffn_activation follows one curve of ffn_hidden: f(" in diagnosis_text(strange)
    assert "Not identified: ffn_activation." in diagnosis_text(strange)


@pytest.mark.parametrize(
    ("stage", "wrong", "found"),
    [
        later("attention_output", lambda text: f"{text} + norm2.shift", "+ norm2.shift"),
        later("attention_output", lambda text: f"roll({text}, 1, 2)", "roll(context_merged @"),
        later("ffn_activation", lambda text: "maximum(ffn_hidden, 0) ** 2", "maximum(ffn_hidden, 0) ** 2"),
    ],
    ids=["a term", "an axis", "an activation"],
)
def test_a_step_is_identified_from_the_output_alone(stage: str, wrong: Wrong, found: str) -> None:
    diagnosis = diagnosed(output_only=True, **{stage: wrong})
    assert diagnosis.confidence == "explained"
    assert {each.stage for each in diagnosis.equations} == {stage}
    assert all(found in each.found for each in diagnosis.equations)
    assert "the output alone cannot tell" in diagnosis_text(diagnosis)


@pytest.mark.release
def test_two_causes_behind_one_output_are_not_explained_by_one() -> None:
    """A false "explained" is worse than a miss."""
    diagnosis = diagnosed(
        output_only=True,
        residual1=lambda text: f"{text} + 0.7 * value",
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden)",
    )
    assert diagnosis.confidence != "explained"


@pytest.mark.release
def test_a_norm_that_gives_its_shift_alone_has_no_epsilon_that_could_be_measured() -> None:
    """The epsilon that fits it best is infinite, and no layer has that."""
    diagnosis = diagnosed(output_only=True, norm2=lambda text: "0 * x + norm2.shift")
    assert not diagnosis.measured


def test_a_large_layer_is_not_played_to_its_output_twenty_thousand_times() -> None:
    case = load().cases["post-relu-512/no-mask"]
    expected = read_golden(case, read_golden_manifest(), constants())
    answers = {"output": np.zeros(case.x_shape, np.float32)}
    assert output_samples([Evidence(observation_of(case, expected, FLOAT32, answers, failed=True))]) == {}


@pytest.mark.release
def test_not_a_number_is_said() -> None:
    lost = diagnosed(ffn_activation=lambda text: f"{text} + log(ffn_hidden - 2) * 0 + 0.1 * cos(3 * ffn_hidden)")
    assert lost.confidence != "explained"
    assert "ffn_activation holds NaN where the specification has numbers" in diagnosis_text(lost)


@pytest.mark.release
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
    assert "halving float32: Cause: residual1 = x + 0.5 * attention_output (" in ended.stdout
    assert "specified x + attention_output: " in ended.stdout
    target = tmp_path / "attention-halved.yaml"
    written = conform("explain", "--write-deviation", target)
    assert written.status == 0, written.stderr
    deviation = read_model(target, Deviation)
    assert deviation.patch.stages == {"residual1": {"x + attention_output": "x + 0.5 * attention_output"}}
    wrong, right = simulate(CASES[0], [deviation]), simulate(CASES[0], [])
    np.testing.assert_allclose(wrong["residual1"], CASES[0].x() + 0.5 * right["attention_output"])


@pytest.mark.release
def test_there_is_nothing_to_write_where_nothing_was_identified(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        layer["norm"]["epsilon"] = 1e-3  # the catalogue has a name for it
        return super().build(layer, parameters, dtype)
    """
    conform("run", "--impl", fake("epsilon", lie), "--case", CASES[0].id, "--dtype", "float32")
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


@pytest.mark.release
@pytest.mark.parametrize("checks", ["[output, stages]", pytest.param("[output]", marks=pytest.mark.release)])
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


@pytest.mark.release
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


@pytest.mark.release
def test_a_deviation_of_ones_own_is_declared_and_verified(
    conform: Callable[..., Any], fake: Callable[..., Path], tmp_path: Path
) -> None:
    """What a diagnosis found is written beside the manifest, declared there, and held to its equation in each run."""
    folder = fake("halving", HALF, checks="[output, stages, gradients]")
    cases = [word for case in CASES[:2] for word in ("--case", case.id)]
    conform("run", "--impl", folder, *cases, "--dtype", "float32")
    (folder / "deviations").mkdir()
    assert conform("explain", "--write-deviation", folder / "deviations" / "attention-halved.yaml").status == 0
    declaration = "{deviation: attention-halved, reason: We halve it on purpose, link: 'https://example.org/halved'}"
    manifest = (folder / "impl.yaml").read_text().replace("deviations: []", f"deviations: [{declaration}]")
    (folder / "impl.yaml").write_text(manifest)
    declared = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    assert declared.status == 0, declared.stdout + declared.stderr
    assert {record["outcome"] for record in declared.report["records"]} == {"deviates", "unsupported"}
    assert "halving: 2 checks are not asked because of declared deviations" in declared.stdout
    honest = fake("halving_no_more", checks="[output, stages]")
    (honest / "deviations").mkdir()
    text = (folder / "deviations" / "attention-halved.yaml").read_text()
    (honest / "deviations" / "attention-halved.yaml").write_text(text)
    manifest = (honest / "impl.yaml").read_text().replace("deviations: []", f"deviations: [{declaration}]")
    (honest / "impl.yaml").write_text(manifest)
    stale = conform("run", "--impl", honest, *cases, "--dtype", "float32")
    assert stale.status == 1
    assert "stale" in {record["outcome"] for record in stale.report["records"]}


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("x + attention_output", "no-change", "changes nothing in any case"),
        ("x + nonsense", "no-name", "nonsense, which is no stage, parameter, input or size"),
        ("x - attention_output", "mask-inverted", "mask-inverted is a deviation of the catalogue"),
    ],
)
def test_a_deviation_of_ones_own_that_cannot_be_played_is_refused(
    conform: Callable[..., Any], fake: Callable[..., Path], text: str, name: str, problem: str
) -> None:
    folder = fake("own")
    (folder / "deviations").mkdir()
    specified = "x + attention_output + 0" if name == "no-change" else "x + attention_output"
    (folder / "deviations" / f"{name}.yaml").write_text(
        f"deviation: {name}\nsentence: It is another sum.\nkind: wiring\nunseen: null\nlinks: []\n"
        f"patch: {{stages: {{residual1: {{{specified}: {text}}}}}}}\n"
    )
    refused = conform("run", "--impl", folder, "--case", CASES[0].id, "--dtype", "float32")
    assert refused.status == 2
    assert problem in refused.stderr
    assert f"deviations/{name}.yaml" in refused.stderr


@pytest.mark.release
def test_numbers_in_the_place_of_nan_are_said_and_named() -> None:
    """A layer that specifies NaN for a query with no key, and gives 0: the catalogue has it, and it is no factor."""
    case = load().cases["post-gelu-nan-rows/blind-queries-forward"]
    zero = catalogue()["fully-masked-row-zero"]
    expected = read_golden(case, read_golden_manifest(), constants())
    answers = {name: value.astype(np.float32) for name, value in simulate(case, [zero]).items()}
    seen = observation_of(case, expected, FLOAT32, {name: answers[name] for name in stages(case.layer)}, failed=True)
    assert diagnose(Failing("mine", "float32", repeats="same"), [seen]).deviations == ("fully-masked-row-zero",)
    strange = {**answers, "attention_weights": np.where(np.isnan(simulate(case, [])["attention_weights"]), 0.25, 0.0)}
    strange["attention_weights"] += answers["attention_weights"]
    shown = {name: strange[name].astype(np.float32) for name in stages(case.layer)}
    text = diagnosis_text(
        diagnose(Failing("mine", "float32"), [observation_of(case, expected, FLOAT32, shown, failed=True)])
    )
    assert "attention_weights holds 0.25 where the specification has NaN or infinity" in text
