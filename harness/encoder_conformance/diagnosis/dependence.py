"""Finds what an answer depends on: the implementation is asked again with one thing changed, as by an invariant."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import Ask
from encoder_conformance.judging.checks.invariants.verdict import judge_invariant
from encoder_conformance.judging.observation import Observation
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.follow_ups import FollowUp, base_of, follow_ups
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import unfit
from encoder_conformance.spec.size import is_large

Repeats = Literal["same", "differ", "unknown"]
"""Whether two answers to one question are the same to the bit (clause I-8), as far as anybody has seen."""
CHANGED = {
    "batch_independence": "the other items of the batch",
    "padding_content": "what padding holds",
    "padding_length": "how much padding there is",
    "permutation": "the order of the positions",
    "causality": "later positions, behind a causal mask",
    "determinism": "chance, or what was asked before",
}
"""Invariant → what it changes. Those of layouts and of forms of masks say nothing about a step."""
_FOLLOW_UPS = 2
"""Questions of each invariant."""


@dataclass(frozen=True)
class _Question:
    """An invariant that `case` has; `asked` are its base and then its follow-ups, renamed."""

    invariant: str
    case: Case
    follow_ups: tuple[FollowUp, ...]
    asked: tuple[Case, ...]


def repeats_again(observations: Sequence[Observation], ask: Ask) -> Repeats:
    """Ask the first small case that failed twice, and say whether the answers are the same to the bit."""
    case = next((each.case for each in observations if each.failed and not is_large(each.case.layer)), None)
    if case is None:
        return "unknown"
    outputs = [each.whole.get("output") for each in ask([_renamed(case, "once"), _renamed(case, "again")])]
    if len(outputs) != 2 or outputs[0] is None or outputs[1] is None:
        return "unknown"
    return "same" if np.array_equal(outputs[0], outputs[1], equal_nan=True) else "differ"


def dependence(evidence: Sequence[Evidence], ask: Ask) -> tuple[str, ...]:
    """Return sentences on what the answers depend on and what they do not; () where nothing could be asked."""
    questions = list(_questions([piece.observation for piece in evidence]))
    answers = {each.case.id: each for each in ask([case for question in questions for case in question.asked])}
    depends, independent = list[str](), list[str]()
    for question in questions:
        found = [answers[case.id] for case in question.asked if case.id in answers]
        outputs = [each.whole["output"].astype(each.dtype.numpy) for each in found if "output" in each.whole]
        if len(outputs) != len(question.asked):
            continue
        named = [{"output": output} for output in outputs]
        verdict = judge_invariant(question.case, question.follow_ups, named, found[0].dtype)
        if verdict.outcome is Outcome.PASS:
            independent.append(CHANGED[question.invariant])
        elif verdict.outcome is Outcome.FAIL and verdict.tensors:
            depends.append(f"{CHANGED[question.invariant]} ({question.case.id})")
    sentences = []
    if depends:
        sentences.append(f"Asked again with one thing changed, the answer depends on {'; on '.join(depends)}.")
    if independent:
        sentences.append(f"It does not depend on {'; on '.join(independent)}.")
    return tuple(sentences)


def _questions(observations: Sequence[Observation]) -> Iterator[_Question]:
    """Yield each invariant of the first case that failed and that it can be asked of."""
    failed = [each.case for each in observations if each.failed and not is_large(each.case.layer)]
    for invariant in CHANGED:
        for case in failed:
            situation = case.situation
            if case.layer.is_stack or unfit(invariant, situation.batch, situation.sequence, situation.mask):
                continue
            changed = situation.model_copy(update={"invariant": invariant, "checks": ("invariant",), "equals": None})
            base = replace(case, situation=changed)
            more = follow_ups(base)[:_FOLLOW_UPS]
            cases = (base_of(base), *(each.case for each in more))
            asked = tuple(_renamed(each, f"{invariant}-{number}") for number, each in enumerate(cases))
            yield _Question(invariant, base, more, asked)
            break


def _renamed(case: Case, name: str) -> Case:
    """Return the case under another name, since answers are identified by it."""
    situation = case.situation
    return replace(case, situation=situation.model_copy(update={"situation": f"{situation.situation}-{name}"}))
