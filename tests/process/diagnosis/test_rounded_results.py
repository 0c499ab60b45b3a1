"""A right result that is rounded is said by its equation, and a step that computes in a narrower format by its name."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from wrong_layers import CASES, Wrong, observed

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.judging.observation import observation_of
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.forms.forward_only import narrowed
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.tape import Node
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

SHOWN = CASES[:1], CASES[2:3]
LINEAR = ("query", "key", "value", "attention_output", "ffn_hidden", "ffn_output")


def rounding(steps: Sequence[str], to: str, dtype: str) -> Diagnosis:
    """What is said of a layer that rounds the results of these steps, by NumPy, and goes on from them."""
    seen = []
    own = FORMATS[dtype]
    for [case] in SHOWN:
        expected, what, shown = read_golden(case, read_golden_manifest(), constants()), given(case), {}

        def onward(name: str, stage: Node, shown: dict[str, np.ndarray] = shown) -> Node:
            value = np.asarray(stage.value, own.numpy)
            shown[name] = narrowed(value, to) if name in steps else value
            return Node(shown[name])

        parameters = {name: value.astype(own.numpy) for name, value in what.parameters.items()}
        what = replace(what, x=what.x.astype(own.numpy), parameters=parameters)
        output = forward(case.layer, what, Arithmetic(own.numpy), onward)["output"]
        answers = {"output": np.asarray(output, own.numpy), **shown}
        answers = {name: answers[name] for name in stages(case.layer) if name in answers}
        failed = judge("stages", tuple(answers), answers, expected, own).outcome is not Outcome.PASS
        seen.append(observation_of(case, expected, own, answers, failed=failed))
    return diagnose(Failing("rounding", dtype, repeats="same"), seen)


def one_of(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.release)


@pytest.mark.release
@pytest.mark.parametrize(
    ("steps", "to", "dtype"),
    [
        (("context",), "bfloat16", "float32"),
        one_of(("norm1", "norm2"), "float32", "float64"),
        one_of(("query",), "float32", "float64"),
        one_of(("attention_scores",), "bfloat16", "float32"),
        one_of(("attention_scores",), "float32", "float64"),
        one_of(("attention_weights",), "bfloat16", "float64"),
        one_of(("attention_weights",), "float16", "float32"),
        one_of(("context",), "float16", "float64"),
        one_of(("context",), "float32", "float64"),
        one_of(("residual1",), "float16", "float32"),
        one_of(("ffn_activation",), "bfloat16", "float32"),
        one_of(LINEAR, "bfloat16", "float32"),
        one_of(LINEAR, "float16", "float64"),
        one_of(("norm1", "attention_weights", "context"), "bfloat16", "float32"),
    ],
)
def test_a_rounded_result_is_said_by_its_equation(steps: tuple[str, ...], to: str, dtype: str) -> None:
    diagnosis = rounding(steps, to, dtype)
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert diagnosis.deviations == ()
    assert {each.stage for each in diagnosis.equations} == {*steps}
    assert all(each.found == f"cast({each.specified}, {to!r})" for each in diagnosis.equations)


@pytest.mark.release
def test_a_format_of_the_same_bits_is_not_told_apart_where_nothing_is_small() -> None:
    """TF32 and float16 have one grid but for the smallest and the largest numbers."""
    diagnosis = rounding(("context",), "tf32", "float32")
    assert diagnosis.deviations == ()
    assert diagnosis.equations[0].found.startswith("cast(attention_weights @ value_heads, ")


def said_of(**wrong: Wrong) -> Diagnosis:
    seen = [observed(case, wrong) for [case] in SHOWN]
    return diagnose(Failing("narrow", "float32", repeats="same"), seen)


def in_bfloat16(text: str, *, result: bool = True) -> str:
    """The equation of a product with its two operands rounded, and the result."""
    inside = re.sub(r"(?!transpose|sqrt|head_dim)\b[a-z_]+(\.[a-z_]+)*\.weight\b|\b[a-z_]*heads\b", _cast, text)
    first = re.match(r"[a-z_0-9]+", inside)
    if first and first[0] != "cast":
        inside = f"cast({first[0]}, 'bfloat16'){inside[first.end() :]}"
    return f"cast({inside}, 'bfloat16')" if result else inside


def _cast(name: re.Match[str]) -> str:
    return f"cast({name[0]}, 'bfloat16')"


@pytest.mark.release
@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (("context",), "attend-in-bfloat16"),
        one_of(("attention_scores",), "attention-scores-in-bfloat16"),
        one_of(LINEAR, "linear-in-bfloat16"),
    ],
)
def test_a_product_of_rounded_operands_has_its_name_whether_its_result_is_rounded_too(
    steps: tuple[str, ...], name: str
) -> None:
    for result in (True, False):
        diagnosis = said_of(**{step: lambda text, result=result: in_bfloat16(text, result=result) for step in steps})
        assert (diagnosis.confidence, diagnosis.deviations) == ("explained", (name,)), diagnosis_text(diagnosis)


@pytest.mark.release
@pytest.mark.parametrize(
    "inside",
    [
        lambda text: "cast(cast(attention_weights, 'bfloat16') @ value_heads, 'bfloat16')",
        one_of(lambda text: f"cast(1.003 * ({text}), 'bfloat16')"),
        one_of(lambda text: f"cast(({text}) * (1 + 0.004 * sin(index({text}, -2))), 'bfloat16')"),
    ],
    ids=["of one operand", "of a multiple", "of a wave"],
)
def test_no_grid_explains_what_was_computed_otherwise(inside: Wrong) -> None:
    diagnosis = said_of(context=inside)
    assert diagnosis.deviations == (), diagnosis_text(diagnosis)
    assert diagnosis.confidence == "unknown" or diagnosis.equations[0].stage == "context"


@pytest.mark.release
def test_a_rounded_result_is_found_beside_what_the_catalogue_names_and_what_nobody_knows() -> None:
    rounded: Wrong = lambda text: f"cast({text}, 'bfloat16')"  # noqa: E731
    strange = said_of(
        context=rounded,
        ffn_activation=lambda text: "sin(ffn_hidden) + 0.3 * abs(ffn_hidden) + 0.1 * cos(3 * ffn_hidden)",
    )
    assert (strange.confidence, strange.deviations, strange.left_open) == ("unknown", (), ("ffn_activation",))
    assert [each.found for each in strange.equations] == ["cast(attention_weights @ value_heads, 'bfloat16')"]
