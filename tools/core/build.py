"""Selects the core: measures which case detects which deviation, and covers all of them with few and cheap cases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.judging.core.sensitivity import Sensitivity
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load
from tools.core.cover import greedy_cover, order_by_gain
from tools.core.criteria import Criterion, of_deviations, of_pairs, of_text, small_required
from tools.core.pairs import distinguished_pairs, possible_deviations
from tools.core.sensitivity import make_sensitivity
from tools.kill import Kill, kills

_ORDINARY = "small"
"""The family of layers that most implementations can build. Cases of another family cost more."""
_OTHER_FAMILY = 1.5
_PLAIN_ACTIVATION = "relu"
"""The activation that every runtime computes in every format. ONNX Runtime has no kernel of erf in float64."""
_OTHER_ACTIVATION = 1.1
_NEW_BUILD = 1.0
"""The cost, in small checks, of a layer and format that no chosen case has: another build, compilation or export."""
_POSITIONS = 100.0
"""Number of positions times layers that costs as much as the fixed part of a check."""


@dataclass(frozen=True)
class CoreSelection:
    """The core: its cases in the order in which they add most criteria, and the criteria that each meets."""

    sensitivity: Sensitivity
    cases: tuple[str, ...]
    reasons: Mapping[str, tuple[Criterion, ...]]
    """Case id → the criteria that no other case of the core meets."""
    shown: Mapping[str, frozenset[Criterion]]
    """Case id → all criteria that it meets."""


def find_core(jobs: int) -> CoreSelection:
    """Simulate the catalogue in every small case with a golden, and select the core. Takes some minutes."""
    specification = load()
    candidates = small_required(specification.cases.values())
    table = measure(list(specification.with_golden.values()), jobs)
    golden_ids = {case.golden_id for case in candidates}
    with_own_golden = [
        case for case in candidates if case.id in golden_ids and case.has_golden and case.situation.batch
    ]
    apart = dict(distinguished_pairs(with_own_golden, ("float32", "float64"), jobs))
    pairs = of_pairs(apart, list(catalogue()), possible_deviations(candidates))
    return choose(candidates, table, pairs)


def measure(cases: Sequence[Case], jobs: int) -> Sensitivity:
    """The table of every small case with a golden, in all formats of the required cases that share the golden.

    What a recommended case alone sees counts for nothing, since no choice of required cases could see it.
    """
    cases_by_formats: dict[tuple[str, ...], list[Case]] = {}
    formats_by_golden: dict[str, set[str]] = {}
    for case in small_required(load().cases.values()):
        formats_by_golden.setdefault(case.golden_id, set()).update(case.situation.dtypes)
    for case in small_required(cases):
        if case.situation.batch:  # an empty batch shows nothing, and some deviations cannot compute one
            cases_by_formats.setdefault(tuple(sorted(formats_by_golden[case.id])), []).append(case)
    records: list[Kill] = []
    for dtypes, group in cases_by_formats.items():
        records += kills(list(catalogue()), group, dtypes, jobs)
    return make_sensitivity(records, catalogue())


def choose(candidates: Sequence[Case], table: Sensitivity, pairs: Mapping[str, set[Criterion]]) -> CoreSelection:
    """Cover every criterion that any candidate meets by few and cheap candidates."""
    by_deviation = of_deviations(candidates, table)
    met = {case.id: of_text(case) for case in candidates}
    for case in candidates:
        # What wrong layers show is to be seen in what every implementation can be asked: few take padding by token ids.
        if case.padding_id is None:
            met[case.id] |= by_deviation.get(case.id, set()) | _pairs_of(case, pairs)
    column_of = {criterion: index for index, criterion in enumerate(sorted(set().union(*met.values())))}
    meets = np.zeros((len(candidates), len(column_of)), dtype=np.bool_)
    for row, case in enumerate(candidates):
        meets[row, [column_of[criterion] for criterion in met[case.id]]] = True
    chosen = greedy_cover(meets, lambda taken: _costs(candidates, [candidates[row] for row in taken]))
    weights = np.array([criterion.kind in ("deviation", "clause") for criterion in column_of], dtype=np.float64)
    ordered = [chosen[index] for index in order_by_gain(meets[chosen], weights)]
    criteria = list(column_of)
    reasons = {}
    for row in ordered:
        others = meets[[other for other in ordered if other != row]].any(axis=0)
        reasons[candidates[row].id] = tuple(criteria[index] for index in np.flatnonzero(meets[row] & ~others))
    cases = tuple(candidates[row].id for row in ordered)
    return CoreSelection(table, cases, reasons, {case: frozenset(met[case]) for case in cases})


def _pairs_of(case: Case, pairs: Mapping[str, set[Criterion]]) -> set[Criterion]:
    """The pairs that the case distinguishes, if it has a golden of its own."""
    return pairs.get(case.id, set())


def _costs(candidates: Sequence[Case], taken: Iterable[Case]) -> npt.NDArray[np.float64]:
    built: set[tuple[str, str]] = {(case.layer.layer, dtype) for case in taken for dtype in case.situation.dtypes}
    return np.array([_cost(case, built) for case in candidates])


def _cost(case: Case, built: set[tuple[str, str]]) -> float:
    situation, layer = case.situation, case.layer
    positions = situation.batch * situation.sequence * layer.stack.layers
    checks = len(situation.checks) + positions / _POSITIONS
    builds = sum((layer.layer, dtype) not in built for dtype in situation.dtypes)
    family = 1.0 if layer.family == _ORDINARY else _OTHER_FAMILY
    activation = 1.0 if layer.feed_forward.activation == _PLAIN_ACTIVATION else _OTHER_ACTIVATION
    return checks * family * activation + _NEW_BUILD * builds
