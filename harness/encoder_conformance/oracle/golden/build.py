"""Computes goldens in parallel processes."""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing

from encoder_conformance.oracle.condition import expectation
from encoder_conformance.oracle.expected import NOTHING, Expected
from encoder_conformance.oracle.golden.kept import EXPECTATIONS, keep, recalled
from encoder_conformance.oracle.golden.thinning import compared_queries, compared_tensors, thin
from encoder_conformance.platform.pool import Pool, completed
from encoder_conformance.platform.processors import blas_threads
from encoder_conformance.platform.progress import Progress
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.load import Constants, constants
from encoder_conformance.spec.parameters import parameter_count


def compute(case: Case, constants: Constants, *, whole: bool = True) -> Expected:
    """The expectation of one case, thinned to the positions that a golden file keeps.

    `whole`: every position is computed, with the noise that goldens are frozen with.
    """
    if case.needs_no_golden:
        return NOTHING
    queries = None if whole else compared_queries(case, constants)
    return thin(case, expectation(case, constants.condition_runs, compared_tensors(case), queries), constants)


def compute_all(
    cases: list[Case], constants: Constants, jobs: int, *, whole: bool = True
) -> Generator[tuple[Case, Expected], None, None]:
    """Yield each case with its expectation, in order of completion. The largest cases start first. `jobs` 0: all of it
    in this process, which a few small cases are done with before another has started. `whole`: as in `compute`."""
    if not jobs:
        yield from ((case, compute(case, constants, whole=whole)) for case in cases)
        return
    # Every process is a fresh interpreter: the BLAS reads its thread count when it is loaded. One thread fixes the
    # order of summation.
    os.environ.update(blas_threads(1))
    largest_first = sorted(cases, key=lambda case: -case.layer.d_model * case.situation.batch * case.situation.sequence)
    with Pool(jobs) as pool:
        futures = {pool.submit(compute, case, constants, whole=whole): case for case in largest_first}
        for future in completed(futures):
            yield futures.pop(future), future.result()  # the result is nowhere else any more


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
    return constants_for([FORMATS[dtype] for dtype in case.situation.dtypes] + ([inside] if inside else []))


def constants_for(formats: Iterable[Format]) -> Constants:
    """The specification's, with fewer runs behind a condition unless one of the formats is less than float32."""
    if any(each.roundoff > FORMATS["float32"].roundoff for each in formats):
        return constants()
    return constants().model_copy(update={"condition_runs": RUNS})


def expectations(
    cases: Sequence[Case], jobs: int, progress: Progress, inside: Format | None = None
) -> dict[str, Expected]:
    """Case id → expectation: kept by an earlier command, or computed; of small layers in this process, of others in
    `jobs` processes.

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
        constants, missing = constants_at_once(alike[0], inside), list[Case]()
        for case in alike:
            if (known := NOTHING if case.needs_no_golden else recalled(case, constants)) is None:
                missing.append(case)
            else:
                yield case, known
        with closing(compute_all(missing, constants, 0 if small else jobs, whole=False)) as computed:
            for case, expected in computed:
                keep(case, constants, expected)
                yield case, expected
        if missing:
            EXPECTATIONS.forget_oldest()
