"""Judges the rows that nothing is kept of, or that failed, keeps each as it comes, and writes the page.

    python -m encoder_conformance.impls.bases.onnx_model.table                        # goes on where it ended
    python -m encoder_conformance.impls.bases.onnx_model.table --anew onnx_keras      # judges one exporter anew
    python -m encoder_conformance.impls.bases.onnx_model.table --page                 # the page alone, of what is kept

What an exporter says that it cannot do belongs to its rows: judge them anew when its impl.yaml changes.
"""

import argparse
import os
from functools import partial

from encoder_conformance.impls.bases.onnx_model.table.configurations import configurations
from encoder_conformance.impls.bases.onnx_model.table.page import KEPT, PAGE, page
from encoder_conformance.survey.judge import judge_waiting, judged
from encoder_conformance.survey.results import kept


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m encoder_conformance.impls.bases.onnx_model.table")
    asked.add_argument(
        "--anew", action="append", default=[], metavar="EXPORTER", help="forget what is kept of this exporter"
    )
    asked.add_argument("--page", action="store_true", help="judge nothing, write the page")
    asked.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows side by side")
    told = asked.parse_args()
    if told.page:
        rows = kept(KEPT)
    else:
        rows = judge_waiting(KEPT, configurations(), told.anew, partial(judged, dtypes=("float32",)), told.jobs)
    PAGE.write_text(page(list(rows.values()), set(configurations()) - set(rows)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
