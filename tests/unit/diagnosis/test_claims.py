"""Every claim beside a cause is held to what could refute it: of each a layer of which it is true, and one of which it
is not, though it was near enough once to be said."""

from collections.abc import Sequence

import pytest
from wrong_layers import Wrong, observed

from encoder_conformance.diagnosis.claims import KINDS, claim, sentence
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.characteristics import characteristics
from encoder_conformance.diagnosis.identify.samples import Sample, samples_of
from encoder_conformance.judging.records import Claim, Diagnosis
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.load import load

SMALL = ("post-relu/no-mask", "post-relu/mask-per-head", "post-relu/padding-right")
UNMASKED = ("post-relu/no-mask", "post-relu/low-variance")
OF_OTHER_ROWS = (*SMALL[:2], "post-relu/low-variance")
TWO_LAYERS = ("pre-gelu/mask-per-head", "post-relu/no-mask", "post-relu/mask-per-head")
OF_HUGE_RANGE = (*TWO_LAYERS, "post-relu/extreme-logits")
_ITEMS = tuple(f"where(index(attention_scores, 0) == {item}, mask, flip(mask, 0))" for item in (0, 1))
_PARITY = "cos(3.141592653589793 * (index(attention_scores, 0) * num_heads + index(attention_scores, 1)))"
REPEATED = f"softmax(attention_scores, where({_PARITY} > 0, {_ITEMS[0]}, {_ITEMS[1]}))"
"""Masks of two items, repeated for as many heads as there are."""
Row = tuple[str, str, Wrong, tuple[str, ...]]
"""A kind of claim, a stage, its wrong equation, and the cases that are shown."""


def claims(stage: str, wrong: Wrong, cases: Sequence[str] = SMALL) -> dict[str, Claim]:
    shown: list[Sample] = samples_of(stage, [Evidence(observed(load().cases[case], {stage: wrong})) for case in cases])
    return {each.kind: each for each in characteristics(stage, shown)}


SAID: list[Row] = [
    ("lost", "key", lambda text: f"({text}) * log(0 - 1)", SMALL),
    ("factor", "context", lambda text: f"1.001 * ({text})", SMALL),
    ("offset", "residual1", lambda text: f"({text}) + 0.01", SMALL),
    ("elsewhere", "context", lambda text: f"flip({text}, -2)", UNMASKED),
    ("slices", "value", lambda text: f"({text}) * where(index(x, -1) < 10, 1.5, 1)", SMALL),
    ("curve", "ffn_activation", lambda text: "sin(ffn_hidden) + 0.3 * ffn_hidden ** 2", TWO_LAYERS),
    ("no-curve", "attention_scores", lambda text: f"0.5 * ({text}) + 0.5 * transpose({text})", SMALL),
    ("linear", "key", lambda text: "x @ transpose(attention.key.weight) + attention.key.bias", OF_OTHER_ROWS),
    ("not-linear", "value", lambda text: "tanh(x) @ attention.value.weight", OF_OTHER_ROWS),
    ("sum-to-one", "attention_weights", lambda text: f"softmax({text}, mask)", SMALL),
    ("sums", "attention_weights", lambda text: f"0.9999 * ({text}) ** 1.0001", SMALL),
    ("zeros", "attention_weights", lambda text: f"where(({text}) < 0.15, 0, {text}) * 1.01", SMALL),
    ("leaks", "attention_weights", lambda text: f"({text}) * 0.7 + 0.01 * cos(index(attention_scores, -1))", SMALL),
    ("others-masks", "attention_weights", lambda text: REPEATED, SMALL),
    ("rows", "norm1", lambda text: text.replace("+ epsilon)", "+ 0.5 + 0.1 * cos(index(residual1, 1)))"), SMALL),
    ("not-rows", "norm1", lambda text: f"tanh({text})", SMALL),
    ("by-feature", "residual1", lambda text: "x + attention_output * (1 + 0.1 * cos(index(x, -1)))", SMALL),
    ("not-by-feature", "residual1", lambda text: "x + sin(attention_output)", SMALL),
    ("by-positions", "attention_scores", lambda text: f"({text}) + sin(index({text}, -1) + index({text}, 2))", SMALL),
]  # fmt: skip
NOT_SAID: list[Row] = [
    ("lost", "key", lambda text: f"2 * ({text})", SMALL),
    # all but one case, and that one among many
    ("factor", "context", lambda text: f"(1 + 0.001 * (sequence_length < 6)) * ({text})", TWO_LAYERS),
    # what is out of line in one place alone is out by no number that is added
    ("offset", "residual1", lambda text: f"({text}) + 0.001 * (index(x, -1) == 3) * (index(x, -2) == 1)", SMALL),
    ("elsewhere", "context", lambda text: f"flip({text}, -2) * (1 + 0.00001 * index(query_heads, -1))", UNMASKED),
    ("slices", "value", lambda text: f"({text}) * where(index(x, -1) < 10, 1.5, 1.001)", SMALL),
    # averaged with its transpose, where one case has a range that hides all others
    ("curve", "attention_scores", lambda text: f"0.5 * ({text}) + 0.5 * transpose({text})", OF_HUGE_RANGE),
    ("curve", "ffn_activation", lambda text: f"({text}) * (1 + 0.0001 * index(ffn_hidden, -1))", TWO_LAYERS),
    ("no-curve", "ffn_activation", lambda text: "tanh(ffn_hidden) + 0.1 * abs(ffn_hidden)", TWO_LAYERS),
    # right in the layer that is looked at first, and wrong in another
    ("linear", "key", lambda text: f"({text}) * (1 + 0.5 * (sequence_length > 6))", OF_OTHER_ROWS),
    ("not-linear", "key", lambda text: text.replace("key.bias", "query.bias"), OF_OTHER_ROWS),
    ("sum-to-one", "attention_weights", lambda text: f"({text}) * 0.9998", SMALL),
    ("sums", "attention_weights", lambda text: "softmax(2 * attention_scores, mask)", SMALL),
    ("zeros", "attention_weights", lambda text: "softmax(2 * attention_scores, mask)", SMALL),
    ("leaks", "attention_weights", lambda text: "softmax(2 * attention_scores, mask)", SMALL),
    # each item has the other's mask, in every head
    ("others-masks", "attention_weights", lambda text: "softmax(attention_scores, flip(mask, 0))", SMALL),
    ("rows", "norm1", lambda text: f"({text}) * (1 + 0.00002 * cos(index(residual1, -1)))", SMALL),
    ("not-rows", "norm1", lambda text: text.replace("+ epsilon", "+ 0.1"), SMALL),
    ("by-feature", "residual1", lambda text: "x + attention_output * (1 + 0.0001 * cos(index(x, -2)))", SMALL),
    ("not-by-feature", "residual1", lambda text: "x + 1.1 * attention_output", SMALL),
    # the sum is another in one head
    ("by-positions", "attention_scores", lambda text: f"({text}) + 1 + 0.001 * index({text}, 1)", SMALL),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stage", "wrong", "cases"), SAID, ids=[row[0] for row in SAID])
def test_it_is_said_of_a_layer_of_which_it_is_true(kind: str, stage: str, wrong: Wrong, cases: tuple[str, ...]) -> None:
    found = claims(stage, wrong, cases)
    assert kind in found, [sentence(each) for each in found.values()]
    if KINDS[kind].held != "bits":
        assert found[kind].sigma is not None
        assert "σ" in sentence(found[kind])
    if KINDS[kind].held == "every":
        assert found[kind].sigma < 10  # type: ignore[operator]
        assert found[kind].cases


@pytest.mark.parametrize(("kind", "stage", "wrong", "cases"), NOT_SAID, ids=[f"{row[0]}-{row[1]}" for row in NOT_SAID])
def test_it_is_not_said_of_a_layer_of_which_it_is_not(
    kind: str, stage: str, wrong: Wrong, cases: tuple[str, ...]
) -> None:
    found = claims(stage, wrong, cases)
    assert kind not in found, sentence(found[kind])


OF_ANSWERS = {
    "depends", "independent", "in-line-alone", "out-of-line-alone", "left-out", "gradients-out", "gradients-right",
    "shape", "dtype", "filled", "right-up-to-positions", "right-up-to-positions-of-items",
    "right-up-to-items",
}  # fmt: skip
"""Claims about answers that were asked for, about gradients, and about answers that cannot be compared, of
`test_claims_of_answers`; and about sizes, of `test_sizes_apart`."""


def test_every_claim_that_can_be_false_has_both() -> None:
    judged = {name for name, kind in KINDS.items() if kind.held != "nothing"} - OF_ANSWERS
    assert {row[0] for row in SAID} == judged == {row[0] for row in NOT_SAID}


def test_a_bias_that_is_wrong_alone_leaves_the_weight_what_it_is() -> None:
    """Whatever the least squares make of rows that say little of it."""
    found = claims("key", lambda text: text.replace("attention.key.bias", "sin(attention.key.bias)"), OF_OTHER_ROWS)
    assert found["linear"].values["weight"] == "attention.key.weight"
    assert found["linear"].values["bias"] != "attention.key.bias"


def test_words_of_an_earlier_release_are_shown_as_they_are() -> None:
    said = Diagnosis(
        implementation="it",
        dtype="float32",
        confidence="unknown",
        first_stage="query",
        cases=("a/b",),
        observed=("query holds NaN.", claim("factor", 0.5, cases=2, stage="query", factor=2.0)),
    )
    assert Diagnosis.model_validate_json(said.model_dump_json()) == said
    assert "query holds NaN. query is 2 times what is specified (0.5 σ over 2 cases)." in diagnosis_text(said)
