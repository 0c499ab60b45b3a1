"""Judges the rows that nothing is kept of, or that failed, keeps each as it comes, and writes the page.

    python -m impls.onnx_model.table                        # begins where it was ended
    python -m impls.onnx_model.table --anew onnx_keras      # forgets the rows of a road first
    python -m impls.onnx_model.table --page                 # the page alone, of what is kept

What a road says that it cannot do belongs to its rows: judge them anew when its impl.yaml changes.
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

from impls.onnx_model.table.judge import judged, variants
from impls.onnx_model.table.page import PAGE, page
from impls.onnx_model.table.rows import keep, kept


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m impls.onnx_model.table")
    asked.add_argument("--anew", action="append", default=[], metavar="ROAD", help="forget what is kept of this road")
    asked.add_argument("--page", action="store_true", help="judge nothing, write the page")
    asked.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows side by side")
    told = asked.parse_args()
    rows = {name: row for name, row in kept().items() if row.road not in told.anew}
    if not told.page:
        waiting = [variant for variant in variants() if variant not in rows or rows[variant].failed]
        pool = ThreadPoolExecutor(told.jobs)
        try:
            for number, row in enumerate(pool.map(judged, waiting), 1):
                rows[row.variant] = row
                keep(rows)
                print(f"{number} of {len(waiting)}: {row.variant}: {row.passed} of {row.applicable}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # ended early: what waits is left for the next time
    PAGE.write_text(page(list(rows.values()), set(variants()) - set(rows)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
