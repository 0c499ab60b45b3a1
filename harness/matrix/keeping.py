"""Judges the variants that nothing is kept of, or that failed, and keeps each row as it comes."""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from encoder_conformance.matrix.rows import Row, keep, kept


def judge_waiting(
    path: Path, variants: Iterable[str], anew: Collection[str], judged: Callable[[str], Row], jobs: int
) -> dict[str, Row]:
    """All rows, by variant. Those of `anew`, which names implementations, are forgotten first.

    Ended early, it leaves what waits for the next time.
    """
    rows = {name: row for name, row in kept(path).items() if row.implementation not in anew}
    waiting = [variant for variant in variants if variant not in rows or rows[variant].failed]
    pool = ThreadPoolExecutor(jobs)
    try:
        for number, row in enumerate(pool.map(judged, waiting), 1):
            rows[row.variant] = row
            keep(path, rows)
            print(f"{number} of {len(waiting)}: {row.variant}: {row.passed} of {row.applicable}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return rows
