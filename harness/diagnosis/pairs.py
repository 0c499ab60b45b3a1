"""Two causes together: the pairs of deviations that may explain most, and whether a second cause earns its place."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judge.observation import Array
from encoder_conformance.spec.deviation import Deviation, Measured

EARNED = 0.9
"""What a second cause has to bring down the first one's cost to, or the stages that the first leaves out of line."""


def most_left(singles: Sequence[Match]) -> float:
    """How many stages a pair may leave out of line, to earn its place beside the best of the singles."""
    return EARNED * singles[0].out_of_line if singles else np.inf


def pairs(suspects: Sequence[Match], nothing: Match, most: float) -> list[tuple[Deviation, ...]]:
    """The pairs that may explain most, the best first, without those that are sure to leave more out of line.

    A stage that one of the two changes is as that one alone has it, and a stage that neither changes is as it is
    without them; of one that both change nothing is known before they are played together.
    """
    costs, out = [match.costs for match in suspects], [match.out for match in suspects]
    far = [match.far for match in suspects]
    moves = [match.moves for match in suspects]
    bounds = []
    for one, other in combinations(range(len(suspects)), 2):
        pair = suspects[one].deviations + suspects[other].deviations
        apart = ~(moves[one] & moves[other])

        def known(of: Sequence[Array], neither: Array, one: int = one, other: int = other, at: Array = apart) -> Array:
            return np.where(moves[one], of[one], np.where(moves[other], of[other], neither))[at]

        if _clash(*pair) or known(far, nothing.far).sum() > most:
            continue
        left, cost = known(out, nothing.out).sum(), known(costs, nothing.costs).sum()
        bound = int(left), float(cost), min(suspects[one].cost, suspects[other].cost)
        bounds.append((bound, pair))
    bounds.sort(key=lambda entry: entry[0])
    return [pair for _, pair in bounds]


def earned(pair: Match, single: Match) -> bool:
    """A second cause has to earn its place: what a first one's own scatter hides has not been seen."""
    if single.explains:
        return pair.explains and pair.cost < EARNED * single.cost
    return pair.out_of_line <= EARNED * single.out_of_line


def _clash(one: Deviation, other: Deviation) -> bool:
    """Two that change the same thing differently are not both so."""
    same_step = set(one.patch.steps) & set(other.patch.steps)
    same_parameter = set(one.patch.parameters) & set(other.patch.parameters)
    both_masks = one.patch.mask is not None and other.patch.mask is not None
    return bool(same_step or same_parameter) or both_masks or (_sets_epsilon(one) and _sets_epsilon(other))


def _sets_epsilon(deviation: Deviation) -> bool:
    norm = deviation.patch.layer and deviation.patch.layer.norm
    return isinstance(deviation, Measured) or bool(norm and norm.epsilon is not None)
