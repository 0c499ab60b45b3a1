"""A cause that is seen is said of no failure that something else in the run speaks against."""

from dataclasses import replace

import pytest

from encoder_conformance.diagnosis.advice import SENTENCES
from encoder_conformance.diagnosis.causes import FailedCheck, causes
from encoder_conformance.implementation.task import Task
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Check

BLIND, PLAIN = "post-relu-zero-rows/blind-queries-padding", "post-relu-zero-rows/no-mask"


def failed(check: Check, case: str, lost: str | None = None) -> FailedCheck:
    task = Task(None, load().cases[case], "float32", check, None)  # type: ignore[arg-type]
    return FailedCheck(task, "", None, lost)


NAN_GRADIENT = failed("gradients", BLIND, "x")


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ((), ["A query has no key to attend to."]),
        ((failed("output", BLIND),), []),  # items are permuted, say: the forward pass is not right
        ((failed("gradients", PLAIN, "x"),), ["first x."]),
        ((failed("output", PLAIN),), ["A query has no key to attend to."]),
    ],
    ids=["alone", "a wrong output", "a gradient with nothing special", "another case"],
)
def test_a_gradient_is_laid_to_a_query_with_no_key_only_if_nothing_else_is_wrong(
    beside: tuple[FailedCheck, ...], said: list[str]
) -> None:
    found = [each.sentences[0] for each in causes("it", [NAN_GRADIENT, *beside], (), lambda dtype, layer: True)]
    assert len(found) == len(said)
    assert all(sentence.endswith(words) for sentence, words in zip(found, said, strict=True))


PADDED = "post-relu/padding-nan"
HUGE = "post-relu/padding-huge"
ELSEWHERE = failed("output", "post-relu/no-mask", "output"), failed("output", PLAIN, "output")
"""NaN where nothing is special about the case, in both layers."""
SEEN: dict[str, tuple[FailedCheck, FailedCheck]] = {
    "no-key": (failed("output", BLIND, "output"), ELSEWHERE[1]),
    "no-key spread": (replace(failed("output", BLIND, "output"), spread=True), ELSEWHERE[1]),
    "padding": (failed("output", PADDED, "output"), ELSEWHERE[0]),
    "gradient no-key": (NAN_GRADIENT, failed("gradients", PLAIN, "x")),
    "gradient padding": (failed("gradients", PADDED, "x"), failed("gradients", "post-relu/no-mask", "x")),
    "gradient alone": (failed("gradients", PLAIN, "x"), failed("output", PLAIN)),
    "after-refusal": (
        replace(failed("refusal", "post-relu/refuse-activation"), reason="after-refusal"),
        failed("output", "post-relu/no-mask"),
    ),
}
"""What is said → a failure that shows it, and what beside it speaks against it."""
OF_TWO_ANSWERS = {"refusal", "invariant", "items", "reach"}
"""Those that are judged by what was asked, and not by what failed beside it: tests/process/diagnosis/test_causes.py,
test_moved_items and test_reach have what they are not said of."""


def test_every_sentence_on_a_cause_has_what_speaks_against_it() -> None:
    assert SEEN.keys() | OF_TWO_ANSWERS == SENTENCES.keys()


@pytest.mark.parametrize("kind", SEEN)
def test_a_cause_is_said_where_it_is_seen_and_nothing_speaks_against_it(kind: str) -> None:
    shows, against = SEEN[kind]
    assert shows.kind == kind
    own = SENTENCES[kind].format(a="The forward pass is right, and a", seen=shows.message or shows.lost or "refusal")
    [alone] = causes("it", [shows], (), lambda dtype, layer: True)
    assert alone.sentences == (own,)
    assert alone.cause == kind.replace(" ", "-").replace("_", "-")
    both = [each.sentences[0] for each in causes("it", [shows, against], (), lambda dtype, layer: True)]
    assert own not in both


def test_huge_numbers_are_laid_to_padding_only_where_they_are_huge_or_the_layer_is_right_else() -> None:
    numbers, wrong = failed("output", HUGE), failed("output", "post-relu/no-mask")

    def said(*failures: FailedCheck) -> list[str]:
        return [each.sentences[0] for each in causes("it", failures, (), lambda dtype, layer: True)]

    assert len(said(numbers)) == len(said(replace(numbers, huge=True), wrong)) == 1
    assert said(numbers, wrong) == []
