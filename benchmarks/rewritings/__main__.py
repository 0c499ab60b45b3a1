"""Judges every rewriting and writes docs/rewritings.md. Exit status 1 if an honest one is accused.

python -m benchmarks.rewritings                        all: half an hour with two processes
python -m benchmarks.rewritings --core --seed 0        the goldens of the core, one seed; writes nothing
python -m benchmarks.rewritings --only softmax-kahan   one rewriting; writes nothing
"""

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks.rewritings.catalogue import CATALOGUE
from benchmarks.rewritings.judging import judged, numbers
from benchmarks.rewritings.page import PAGE, write
from benchmarks.rewritings.results import Judged, Results, Row, largest_of
from encoder_conformance.platform.pool import Pool, in_order
from encoder_conformance.platform.processors import blas_threads

SEEDS = (0, 1, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--core", action="store_true", help="the goldens of the core instead of all small required ones"
    )
    parser.add_argument("--only", action="append", choices=CATALOGUE, metavar="NAME", help="one rewriting; repeatable")
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    seeds, names = options.seed or list(SEEDS), options.only or list(CATALOGUE)
    subjects = numbers(core_only=options.core)
    os.environ.update(blas_threads(1))
    found: dict[str, list[Judged]] = {name: [] for name in names}
    with Pool(options.jobs) as pool:
        asked = [(subject, seed, names) for seed in seeds for subject in subjects]
        for done, part in enumerate(in_order([pool.submit(judged, *each) for each in asked]), 1):
            for one in part:
                found[one.rewriting].append(one)
            if done % 25 == 0:
                print(f"[{done}/{len(asked)}]", file=sys.stderr, flush=True)
    results = Results(len(subjects), seeds, {name: row_of(name, judged) for name, judged in found.items()})
    for name, row in results.rows.items():
        errors = (f"{dtype} {largest.rms} / {largest.max}" for dtype, largest in row.by_format.items())
        print(f"{name}: {', '.join(errors)}")
    print("\n".join(results.accused()) or "no honest rewriting is accused")
    if not (options.core or options.only or options.seed):
        write(results)
        print(PAGE)
    return 1 if results.accused() else 0


def row_of(name: str, judged: Sequence[Judged]) -> Row:
    rewriting = CATALOGUE[name]
    return Row(rewriting.group, rewriting.says, rewriting.less_exact, largest_of(judged))


if __name__ == "__main__":
    sys.exit(main())
