"""Judges the configurations that have no stored row or a failed one, stores each row, and writes the pages.

    python -m tools.survey                          # resumes where it was ended
    python -m tools.survey pytorch hf_bert          # judges these implementations only
    python -m tools.survey --anew flax_nnx          # deletes the rows of an implementation first
    python -m tools.survey --python lucid_dl=PATH   # uses an interpreter, as for conform run
    python -m tools.survey --page                   # writes the pages only, from the stored rows

Implementations that cannot be started here keep their rows.
"""

import argparse
import os
from functools import partial

from encoder_conformance.implementation.interpreter import Missing, resolve
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.platform.errors import InputError
from tools.survey.judge import configurations, judge_waiting, judged
from tools.survey.page import KEPT, PAGE, page
from tools.survey.results import kept


def main() -> None:
    """Run the survey, or write its pages."""
    parser = argparse.ArgumentParser(prog="python -m tools.survey")
    parser.add_argument("names", nargs="*", metavar="NAME", help="judge these only")
    parser.add_argument("--anew", action="append", default=[], metavar="NAME", help="delete the rows of this one first")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="as for conform run")
    parser.add_argument("--page", action="store_true", help="write the pages only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows judged in parallel")
    options = parser.parse_args()
    interpreters = dict(pair.split("=", 1) for pair in options.python)
    rows = kept(KEPT)
    if not options.page:
        selected = [
            variant for variant in configurations() if not options.names or variant.partition(":")[0] in options.names
        ]
        available = [variant for variant in selected if _can_start(variant, interpreters)]
        judge = partial(judged, dtypes=("float64", "float32"), interpreters=interpreters)
        rows = judge_waiting(KEPT, available, options.anew, judge, options.jobs)
    current = {variant: rows[variant] for variant in configurations() if variant in rows}
    PAGE.write_text(page(list(current.values()), set(configurations()) - set(rows)), encoding="utf-8")
    print(PAGE)


def _can_start(variant: str, interpreters: dict[str, str]) -> bool:
    folder, implementation = find_implementation(variant)
    interpreter = resolve(implementation, folder, interpreters)
    if isinstance(interpreter, Missing):
        print(f"{variant}: {interpreter.reason}")
    return not isinstance(interpreter, Missing)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
