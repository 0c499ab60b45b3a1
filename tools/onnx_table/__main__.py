"""Judges the rows that nothing is kept of, or that failed, keeps each as it comes, and writes the page.

    python -m tools.onnx_table                        # goes on where it ended
    python -m tools.onnx_table --anew onnx_keras      # judges one exporter anew
    python -m tools.onnx_table --page                 # the page alone, of what is kept

What an exporter says that it cannot do belongs to its rows: judge them anew when its impl.yaml changes.
"""

import argparse
import os
from functools import partial

from tools.onnx_table.configurations import configurations
from tools.onnx_table.page import KEPT, PAGE, page
from tools.survey.judge import judge_waiting, judged
from tools.survey.results import kept


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tools.onnx_table")
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
