"""Expectations for a layer of the user's own, of which no golden is kept: computed while the user waits."""

from collections.abc import Generator, Sequence
from contextlib import closing

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute_all
from encoder_conformance.platform.progress import Progress
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants, constants
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.parameters import parameter_count

RUNS = 16
"""Monte-Carlo runs behind σ, for the suite's 64: of an element with its neighbours it is known within an eighth.

Errors in σ come out 7 % larger than with 64, since a σ that is too small by chance weighs most. In float32 that decides
nothing. What computes in less gets the suite's runs: its stages come near the limit, and are held by it alone.
"""
SMALL = 300_000
"""Parameters up to which expectations are computed sooner than another process has started."""


def constants_at_once(case: Case, inside: Format | None = None) -> Constants:
    """The specification's, with fewer runs behind a condition unless the case is judged in less than float32.

    `inside`: the format in which an implementation computes, where that is narrower than its answers'.
    """
    formats = [FORMATS[dtype] for dtype in case.situation.dtypes] + ([inside] if inside else [])
    if any(each.roundoff > FORMATS["float32"].roundoff for each in formats):
        return constants()
    return constants().model_copy(update={"condition_runs": RUNS})


def expectations(
    cases: Sequence[Case], jobs: int, progress: Progress, inside: Format | None = None
) -> dict[str, Expected]:
    """Case id → expectation: of small layers computed in this process, of others in `jobs` processes.

    `inside`: the format in which the subject computes, where that is narrower than its answers'.
    """
    progress.begin("computing what it should give", len(cases))
    expected = {}
    with closing(_compute(cases, jobs, inside)) as computed:
        for case, result in computed:
            expected[case.id] = result
            progress.step(f"computed {case.id}")
    return expected


def _compute(cases: Sequence[Case], jobs: int, inside: Format | None) -> Generator[tuple[Case, Expected], None, None]:
    small = all(parameter_count(case.layer) < SMALL for case in cases)
    by_runs: dict[int, list[Case]] = {}
    for case in cases:
        by_runs.setdefault(constants_at_once(case, inside).condition_runs, []).append(case)
    for alike in by_runs.values():
        yield from compute_all(alike, constants_at_once(alike[0], inside), 0 if small else jobs)
