"""Finds the core: measures which case sees what, and chooses few and cheap cases that together see all of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.core.cover import by_what_they_add, greedy_cover
from encoder_conformance.core.criteria import Criterion, of_deviations, of_pairs, of_text, small_required
from encoder_conformance.core.pairs import told_apart
from encoder_conformance.core.sensitivity import Sensitivity, measured
from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.deviations.kill import Kill, kills
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load

_ORDINARY = "small"
"""The family of layers that most implementations can build: a case of another one has to be worth more."""
_OTHER_FAMILY = 1.5
_NEW_BUILD = 1.0
"""What a layer in a format that no chosen case has costs, in small checks: it is built, compiled or exported anew."""
_POSITIONS = 100.0
"""Positions, times layers, that cost as much as a small check does beside them."""


@dataclass(frozen=True)
class Found:
    """The core, the case first that shows most, and what each of its cases alone is there for."""

    sensitivity: Sensitivity
    cases: tuple[str, ...]
    reasons: Mapping[str, tuple[Criterion, ...]]
    """Case id → what no other case of the core has."""
    shown: Mapping[str, frozenset[Criterion]]
    """Case id → all that it has."""


def find(jobs: int) -> Found:
    """Play the catalogue in every small case with a golden, and choose. Takes some minutes."""
    specification = load()
    candidates = small_required(specification.cases.values())
    table = measure(list(specification.with_golden.values()), jobs)
    golden = {case.golden_id for case in candidates}
    own = [case for case in candidates if case.id in golden and case.has_golden and case.situation.batch]
    pairs = of_pairs(dict(told_apart(own, ("float32", "float64"), jobs)), list(catalogue()))
    return choose(candidates, table, pairs)


def measure(cases: Sequence[Case], jobs: int) -> Sensitivity:
    """The table of every small case with a golden, in the formats in which any case that shares it is asked."""
    formats: dict[tuple[str, ...], list[Case]] = {}
    asked: dict[str, set[str]] = {}
    for case in load().cases.values():
        asked.setdefault(case.golden_id, set()).update(case.situation.dtypes)
    for case in small_required(cases):
        if case.situation.batch:  # an empty one shows nothing, and a wrong form may have no answer to it
            formats.setdefault(tuple(sorted(asked[case.id])), []).append(case)
    found: list[Kill] = []
    for dtypes, alike in formats.items():
        found += kills(list(catalogue()), alike, dtypes, jobs)
    return measured(found, catalogue())


def choose(candidates: Sequence[Case], table: Sensitivity, pairs: Mapping[str, set[Criterion]]) -> Found:
    seen = of_deviations(candidates, table)
    shown = {case.id: of_text(case) | seen.get(case.id, set()) | _pairs_of(case, pairs) for case in candidates}
    elements = {criterion: at for at, criterion in enumerate(sorted(set().union(*shown.values())))}
    has = np.zeros((len(candidates), len(elements)), dtype=np.bool_)
    for row, case in enumerate(candidates):
        has[row, [elements[criterion] for criterion in shown[case.id]]] = True
    chosen = greedy_cover(has, lambda taken: _costs(candidates, [candidates[row] for row in taken]))
    weights = np.array([criterion.kind in ("deviation", "clause") for criterion in elements], dtype=np.float64)
    ordered = [chosen[at] for at in by_what_they_add(has[chosen], weights)]
    names = list(elements)
    reasons = {}
    for row in ordered:
        others = has[[other for other in ordered if other != row]].any(axis=0)
        reasons[candidates[row].id] = tuple(names[at] for at in np.flatnonzero(has[row] & ~others))
    cases = tuple(candidates[row].id for row in ordered)
    return Found(table, cases, reasons, {case: frozenset(shown[case]) for case in cases})


def _pairs_of(case: Case, pairs: Mapping[str, set[Criterion]]) -> set[Criterion]:
    """Those of its golden, where it asks for all that its golden's own case does."""
    return pairs.get(case.id, set())


def _costs(candidates: Sequence[Case], taken: Iterable[Case]) -> npt.NDArray[np.float64]:
    built: set[tuple[str, str]] = {(case.layer.layer, dtype) for case in taken for dtype in case.situation.dtypes}
    return np.array([_cost(case, built) for case in candidates])


def _cost(case: Case, built: set[tuple[str, str]]) -> float:
    situation, layer = case.situation, case.layer
    positions = situation.batch * situation.sequence * layer.stack.layers
    ask = len(situation.checks) + positions / _POSITIONS
    new = sum((layer.layer, dtype) not in built for dtype in situation.dtypes)
    return ask * (1.0 if layer.family == _ORDINARY else _OTHER_FAMILY) + _NEW_BUILD * new
