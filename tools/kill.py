"""The detection matrix: every deviation played against every case, in σ, to grade the suite."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.judging.verdict import Verdict, judge
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.platform.pool import Pool, in_order
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages

UNCOMPARABLE = 1e300
"""The σ of an answer whose numbers cannot be compared at all: NaN, or another shape."""


@dataclass(frozen=True)
class Kill:
    """One deviation against one case: the rms σ of a check, and the first stage out of line."""

    deviation: str
    case: str
    required: bool
    dtype: str
    check: Check
    sigma: float
    stage: str | None


def kills(names: list[str], cases: list[Case], dtypes: tuple[str, ...], jobs: int) -> Iterator[Kill]:
    """Every (deviation, case) that the patch says anything about, case by case, in several processes.

    `cases` have goldens of their own; they are judged in each of `dtypes`.
    """
    heavy_first = sorted(cases, key=lambda case: -case.layer.d_model * case.situation.batch * case.situation.sequence)
    with Pool(jobs) as pool:
        for found in in_order([pool.submit(_kills_of, case.id, names, dtypes) for case in heavy_first]):
            yield from found


PLAYED: tuple[Check, ...] = ("output", "stages")
"""The checks that a played deviation says anything of, where a case has them."""


def _kills_of(case_id: str, names: list[str], dtypes: tuple[str, ...]) -> list[Kill]:
    case = load().cases[case_id]
    golden = read_golden(case, read_golden_manifest(), constants())
    golden = replace(
        golden, tensors={name: golden.tensors[name] for name in stages(case.layer) if name in golden.tensors}
    )
    expected = {dtype: in_format(case, golden, FORMATS[dtype]) for dtype in dtypes}
    found = []
    for name in names:
        deviation = catalogue()[name]
        if not changes(case, deviation):
            continue
        wrong = simulate(case, [deviation])
        for dtype in dtypes:
            for check in (check for check in PLAYED if check in case.situation.checks):
                judged = played_verdict(check, case, wrong, expected[dtype], FORMATS[dtype])
                uncomparable = any(tensor.problem for tensor in judged.tensors)
                sigma = UNCOMPARABLE if uncomparable else judged.rms or 0.0
                found.append(Kill(name, case_id, case.is_required, dtype, check, sigma, judged.stage))
    return found


def played_verdict(check: Check, case: Case, wrong: Mapping[str, Array], expected: Expected, dtype: Format) -> Verdict:
    """Judge the played stages as if an adapter had answered with them."""
    names = ("output",) if check == "output" else stages(case.layer)
    with np.errstate(over="ignore", invalid="ignore"):
        answer = {name: wrong[name].astype(dtype.numpy) for name in names}
    return judge(check, names, answer, expected, dtype)


@dataclass(frozen=True)
class Best:
    """The required case that shows a deviation best at the output, and the one at any stage.

    Of a deviation that no required case can have, it is a recommended one: no key that was added is required (V-9).
    """

    deviation: str
    output: Kill | None
    stages: Kill | None
    caught_by: int
    applicable: int


def best(found: list[Kill], limit: float) -> dict[str, Best]:
    """Deviation → its best cases; `limit` is the rms from which a case counts as having caught it."""
    by_name: dict[str, list[Kill]] = {}
    for kill in ranked(found):
        by_name.setdefault(kill.deviation, []).append(kill)
    return {
        name: Best(
            name,
            max((k for k in all_ if k.check == "output"), key=lambda k: k.sigma, default=None),
            max((k for k in all_ if k.check == "stages"), key=lambda k: k.sigma, default=None),
            len({k.case for k in all_ if k.sigma > limit}),
            len({k.case for k in all_}),
        )
        for name, all_ in by_name.items()
    }


def ranked(found: list[Kill]) -> list[Kill]:
    """Those of required cases; of a deviation that no required case can have, all of it."""
    of_required = {kill.deviation for kill in found if kill.required}
    return [kill for kill in found if kill.required or kill.deviation not in of_required]
