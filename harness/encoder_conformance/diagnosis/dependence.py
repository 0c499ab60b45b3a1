"""Finds what an answer depends on: the implementation is asked again with one thing changed, as by an invariant."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Literal

import numpy as np

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import Ask
from encoder_conformance.judging.checks.invariants.verdict import judge_invariant
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Claim
from encoder_conformance.judging.verdict import Verdict
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.follow_ups import FollowUp, Rearranged, base_of, follow_ups
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.portable import Floats
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
_FLIPS = 4.0
"""Times what one rounding of x changes, from which a change is no flip of a coarse format."""


@dataclass(frozen=True)
class _Rounded(Rearranged):
    """The base case with every element of x another by one rounding, up and down in turn."""

    roundoff: float = field(kw_only=True)

    def x(self) -> Floats:
        x = self.base.x()
        turns = np.where(np.arange(x.size) % 2, 2.0, -2.0).reshape(x.shape)
        return np.asarray(x * (1.0 + self.roundoff * turns))


@dataclass(frozen=True)
class _Question:
    """An invariant that `case` has; `asked` are its base, x `rounded` otherwise, and its follow-ups, renamed."""

    invariant: str
    case: Case
    rounded: FollowUp | None
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


def dependence(evidence: Sequence[Evidence], ask: Ask) -> tuple[Claim, ...]:
    """Return what the answers depend on and what they do not; () where nothing could be asked.

    An answer in a coarse format may flip with the order of a sum: what is changed by no more than a few times what one
    rounding of x changes says nothing.
    """
    questions = list(_questions([piece.observation for piece in evidence]))
    answers = {each.case.id: each for each in ask([case for question in questions for case in question.asked])}
    depends, independent = list[Claim](), dict[str, list[tuple[str, float]]]()
    for question in questions:
        found = [answers[case.id] for case in question.asked if case.id in answers]
        outputs = [each.whole["output"].astype(each.dtype.numpy) for each in found if "output" in each.whole]
        if len(outputs) != len(question.asked):
            continue
        changed, rounded = _changes(question, outputs, found[0].dtype)
        on, case = CHANGED[question.invariant], question.case.id
        if changed.outcome is Outcome.PASS:
            left = max(each.rms or 0.0 for each in changed.tensors)
            independent.setdefault(case, []).append((on, left))
        elif changed.outcome is Outcome.FAIL and changed.tensors and _furthest(changed) > _FLIPS * rounded:
            sigma = None if question.invariant == "determinism" else _furthest(changed)
            depends.append(claim("depends", sigma, on=on, case=case))
    held = [
        claim("independent", max(left for _, left in of_case), on="; on ".join(on for on, _ in of_case), case=case)
        for case, of_case in independent.items()
    ]
    return (*depends, *held)


def _changes(question: _Question, outputs: Sequence[Array], dtype: Format) -> tuple[Verdict, float]:
    """Return the verdict on what was changed, and the most that a rounding of x changes, in σ; 0 where bits count."""
    base, *others = [{"output": output} for output in outputs]
    judged = partial(judge_invariant, question.case, dtype=dtype)
    if question.rounded is None:
        return judged(question.follow_ups, [base, *others]), 0.0
    rounded = judged([question.rounded], [base, others[0]])
    return judged(question.follow_ups, [base, *others[1:]]), _furthest(rounded)


def _furthest(verdict: Verdict) -> float:
    """Return the largest error of a verdict, in σ; ∞ where there are no numbers."""
    return max((np.inf if each.max is None else each.max for each in verdict.tensors), default=np.inf)


def _questions(observations: Sequence[Observation]) -> Iterator[_Question]:
    """Yield each invariant of the first case that failed and that it can be asked of."""
    failed = [each.case for each in observations if each.failed and not is_large(each.case.layer)]
    roundoff = observations[0].dtype.roundoff
    for invariant in CHANGED:
        for case in failed:
            situation = case.situation
            if case.layer.is_stack or unfit(invariant, situation.batch, situation.sequence, situation.mask):
                continue
            changed = situation.model_copy(update={"invariant": invariant, "checks": ("invariant",), "equals": None})
            base = replace(case, situation=changed)
            bits_or_ids = invariant == "determinism" or case.layer.takes_ids
            more, rounded = follow_ups(base)[:_FOLLOW_UPS], None if bits_or_ids else _rounded(base, roundoff)
            cases = (base_of(base), *(each.case for each in (rounded, *more) if each is not None))
            asked = tuple(_renamed(each, f"{invariant}-{number}") for number, each in enumerate(cases))
            yield _Question(invariant, base, rounded, more, asked)
            break


def _rounded(case: Case, roundoff: float) -> FollowUp:
    base = base_of(case)
    items, positions = np.indices(base.x_shape[:2])
    same = {each.name: getattr(base, each.name) for each in fields(Case)}
    nothing = np.zeros(items.shape, np.bool_)
    rounded = _Rounded(**same, base=base, items=items, positions=positions, redrawn=nothing, roundoff=roundoff)
    return FollowUp("with x rounded otherwise", "as it is", rounded)


def _renamed(case: Case, name: str) -> Case:
    """Return the case under another name, since answers are identified by it, asked for its output alone."""
    situation = case.situation
    update = {"situation": f"{situation.situation}-{name}", "checks": ("output",), "equals": None}
    return replace(case, situation=situation.model_copy(update=update))
