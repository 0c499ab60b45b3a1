"""A cause that is seen is said of no failure that something else in the run speaks against."""

import pytest

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
