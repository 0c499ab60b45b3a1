"""Chooses the observations that a diagnosis tries its hypotheses on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.judging.observation import Observation, ObservedCase
from encoder_conformance.oracle.forms.needs import has_empty_row
from encoder_conformance.spec.size import is_large

TRIED = 30
"""Observations that a hypothesis is tried on."""
_SCREENING = 6
"""Small cases that refute most of what is wrong of a layer."""
_PAIRS = 1500
"""Pairs that are played, of those that may explain most. Enough for any that show their stages."""
_PAIRS_OF_OUTPUTS = 800
"""The same where no stage is shown, and two causes come out one by one where the implementation is asked again."""
_PAIRS_OF_LARGE = 200
"""The same where a play takes as long as a hundred of a small layer."""
_LARGE = 4
_LONGEST = 128
"""Positions of a sequence that says as much as a longer one."""
_POSITIONS = 20
"""More of them say no more."""


Chosen = TypeVar("Chosen", bound=ObservedCase)


def choose(observations: Sequence[Chosen]) -> list[Chosen]:
    """Choose from each layer in turn, and of a layer, from situations that were taken least, those that say most.

    Large layers say nothing that small ones do not, and take a hundred times as long; nor do long sequences, where a
    short one is out of line, too. An item that is all padding, and
    a query with no key, have unspecified rows, which a deviation that mixes items or positions carries into others:
    what it gives there cannot be predicted; nor what it makes of padding that is not as drawn. And where NaN is right,
    no number says how wrong another one is; nor does it of an answer in another dtype.
    """
    predicted = _short(_predicted(observations))
    small = _small(predicted)
    by_layer: dict[str, list[Chosen]] = {}
    for observation in sorted(small or predicted, key=_informative_first):
        by_layer.setdefault(observation.case.layer.layer, []).append(observation)
    queues = sorted(by_layer.values(), key=lambda queue: _informative_first(queue[0]))
    chosen: list[Chosen] = []
    taken: Counter[str] = Counter()
    wanted = TRIED if small else _LARGE
    while len(chosen) < wanted and any(queues):
        for queue in filter(None, queues):
            least = min(queue, key=lambda observation: taken[observation.case.situation.situation])
            queue.remove(least)
            taken[least.case.situation.situation] += 1
            chosen.append(least)
    return chosen[:wanted]


def _predicted(observations: Sequence[Chosen]) -> list[Chosen]:
    """Return those whose answers can be predicted; all, where none of them failed."""
    predicted = [observation for observation in observations if _can_be_predicted(observation)]
    return predicted if any(observation.failed for observation in predicted) else list(observations)


def _short(observations: Sequence[Chosen]) -> list[Chosen]:
    """Return those of few positions; all, where none of them failed."""
    short = [observation for observation in observations if observation.case.situation.sequence <= _LONGEST]
    return short if any(observation.failed for observation in short) else list(observations)


def _small(observations: Sequence[Chosen]) -> list[Chosen]:
    return [observation for observation in observations if not is_large(observation.case.layer)]


def not_chosen(observations: Sequence[Chosen], chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return what could have been chosen and was not, failed first. Large layers, where there are no small ones."""
    taken = {observation.case.id for observation in chosen}
    left = [each for each in _predicted(observations) if each.case.id not in taken]
    return sorted(_small(left) if _small(chosen) else left, key=lambda each: not each.failed)


def of_other_large_layers(observations: Sequence[Chosen], chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the case that says most of each large layer that failed, and that none of the chosen is of."""
    taken = {each.case.layer.layer for each in chosen}
    found: dict[str, Chosen] = {}
    for each in sorted(filter(_can_be_predicted, observations), key=_informative_first):
        layer = each.case.layer
        if each.failed and is_large(layer) and layer.layer not in taken:
            found.setdefault(layer.layer, each)
    return list(found.values())


def _can_be_predicted(observation: ObservedCase) -> bool:
    case = observation.case
    row = case.layer.attention.fully_masked_row
    if not observation.in_format or row == "nan" or (row == "unspecified" and has_empty_row(case)):
        return False
    return case.situation.input.padding == "as_drawn" and bool(case.valid().any(axis=1).all())


def _informative_first(observation: ObservedCase) -> tuple[bool, bool, int, int, str]:
    """Return a key that sorts failed ones first, and of those the ones with a mask and many positions; of a large layer
    no more of them than say more, for each costs as much as a small layer."""
    situation, case = observation.case.situation, observation.case
    positions = situation.batch * situation.sequence
    beyond = positions if is_large(case.layer) else 0
    return not observation.failed, case.mask() is None, -min(positions, _POSITIONS), beyond, case.id


@dataclass(frozen=True)
class Screening:
    """The evidence that every hypothesis is tried on, `first`, and that the slower questions are asked of, `slower`:
    which epsilon, and which two causes. Only what passes either is tried on all that was chosen."""

    first: Sequence[Evidence]
    slower: Sequence[Evidence]
    pairs: int
    """How many of them can be played."""


def screening(evidence: Sequence[Evidence]) -> Screening:
    """Return some cases, and then all; of large layers both times the item of the first one most out of line."""
    first = evidence[0].observation
    if not is_large(first.case.layer):
        shows_stages = any(len(piece.stages) > 1 for piece in evidence)
        return Screening(evidence[:_SCREENING], evidence, _PAIRS if shows_stages else _PAIRS_OF_OUTPUTS)
    item = [Evidence(first, _item_most_out_of_line(first))]
    return Screening(item, item, _PAIRS_OF_LARGE)


def free_of_padding_first(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Sort what every hypothesis is tried on, and the rest: what is wrong may carry padding into other rows, and is
    played with both contents that padding may have (M-3). Few hypotheses are left when these cases come last."""
    if is_large(evidence[0].case.layer):
        return [*evidence]
    parts = evidence[:_SCREENING], evidence[_SCREENING:]
    return [piece for part in parts for piece in sorted(part, key=lambda piece: not piece.case.valid().all())]


def _item_most_out_of_line(observation: Observation) -> int:
    """Judge by the last tensor that can be compared: the output, unless its shape or dtype is wrong."""
    worst = np.zeros(observation.case.situation.batch)
    for name, value in observation.values.items():
        tensor = observation.expected.tensors[name]
        if value is not None and value.size:
            items = tensor.positions // int(np.prod(tensor.shape[1:]))
            difference = np.nan_to_num(np.abs(value - tensor.golden), nan=np.inf)
            worst = np.full_like(worst, -1.0)  # of items that are not compared
            np.maximum.at(worst, items, difference)
    return int(worst.argmax())
