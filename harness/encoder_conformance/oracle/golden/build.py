"""Computes goldens in parallel processes."""

import os
from collections.abc import Generator
from concurrent.futures import as_completed

from encoder_conformance.oracle.condition import expectation
from encoder_conformance.oracle.expected import NOTHING, Expected
from encoder_conformance.oracle.golden.thinning import thin
from encoder_conformance.platform.pool import Pool
from encoder_conformance.platform.processors import blas_threads
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants


def compute(case: Case, constants: Constants) -> Expected:
    """The expectation of one case, thinned to the positions that a golden file keeps."""
    if case.needs_no_golden:
        return NOTHING
    return thin(case, expectation(case, constants.condition_runs), constants)


def compute_all(cases: list[Case], constants: Constants, jobs: int) -> Generator[tuple[Case, Expected], None, None]:
    """Yield each case with its expectation, in order of completion. The largest cases start first. `jobs` 0: all of it
    in this process, which a few small cases are done with before another has started."""
    if not jobs:
        yield from ((case, compute(case, constants)) for case in cases)
        return
    # Every process is a fresh interpreter: the BLAS reads its thread count when it is loaded. One thread fixes the
    # order of summation.
    os.environ.update(blas_threads(1))
    largest_first = sorted(cases, key=lambda case: -case.layer.d_model * case.situation.batch * case.situation.sequence)
    with Pool(jobs) as pool:
        futures = {pool.submit(compute, case, constants): case for case in largest_first}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()  # the result is nowhere else any more
