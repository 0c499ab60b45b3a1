"""What the layer language was extended by (L-7): who has it is asked for it, and nobody else."""

from collections.abc import Callable
from typing import Any

import pytest

from encoder_conformance.spec.outcome import Outcome

CASE = "pre-quick-gelu/no-mask"


def test_an_implementation_that_is_older_is_asked_nothing_and_fails_nothing(
    conform: Callable[..., Any], fake: Callable
) -> None:
    ended = conform("run", "--impl", fake("older", additions="[]"), "--case", CASE, "--case", "pre-gelu/no-mask")
    outcomes = {(record["case"], record["outcome"]) for record in ended.report["records"]}
    assert outcomes == {(CASE, Outcome.UNSUPPORTED.value), ("pre-gelu/no-mask", Outcome.PASS.value)}
    assert "quick_gelu is not among its capabilities" in ended.messages()
    assert ended.status == 0


@pytest.mark.parametrize("named", ["[quick_gelu]", "all"])
def test_an_implementation_that_has_it_is_asked(conform: Callable[..., Any], fake: Callable, named: str) -> None:
    ended = conform("run", "--impl", fake("has_it", additions=named), "--case", CASE)
    assert set(ended.outcomes("output")) == {Outcome.PASS.value}


def test_an_addition_that_is_not_known_is_refused(conform: Callable[..., Any], fake: Callable) -> None:
    ended = conform("run", "--impl", fake("has_more", additions="[slow_gelu]"), "--case", CASE)
    assert ended.status == 2
    assert "capabilities.additions" in ended.stderr
