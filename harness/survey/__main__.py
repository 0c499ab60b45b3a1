"""Judges the implementations that nothing is kept of, or that failed, keeps each row as it comes, and writes the pages.

    python -m encoder_conformance.survey                          # begins where it was ended
    python -m encoder_conformance.survey pytorch hf_bert          # of these implementations alone
    python -m encoder_conformance.survey --anew flax_nnx          # forgets the rows of an implementation first
    python -m encoder_conformance.survey --python lucid_dl=PATH   # an interpreter of its own, as for conform run
    python -m encoder_conformance.survey --page                   # the pages alone, of what is kept

Implementations that cannot be started here keep the rows that they have.
"""

import argparse
import os
from functools import partial

from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Missing, resolve
from encoder_conformance.impl.manifest import find_implementation
from encoder_conformance.survey.judge import configurations, judge_waiting, judged
from encoder_conformance.survey.page import KEPT, PAGE, matrix, page, write_into_readme
from encoder_conformance.survey.results import kept


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m encoder_conformance.survey")
    asked.add_argument("names", nargs="*", metavar="NAME", help="judge these alone")
    asked.add_argument("--anew", action="append", default=[], metavar="NAME", help="forget what is kept of this one")
    asked.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="as for conform run")
    asked.add_argument("--page", action="store_true", help="judge nothing, write the pages")
    asked.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows side by side")
    told = asked.parse_args()
    interpreters = dict(pair.split("=", 1) for pair in told.python)
    rows = kept(KEPT)
    if not told.page:
        named = [variant for variant in configurations() if not told.names or variant.partition(":")[0] in told.names]
        here = [variant for variant in named if _starts(variant, interpreters)]
        judge = partial(judged, dtypes=("float64", "float32"), interpreters=interpreters)
        rows = judge_waiting(KEPT, here, told.anew, judge, told.jobs)
    of_today = {variant: rows[variant] for variant in configurations() if variant in rows}
    PAGE.write_text(page(list(of_today.values()), set(configurations()) - set(rows)), encoding="utf-8")
    write_into_readme(matrix(list(of_today.values())))
    print(PAGE)


def _starts(variant: str, interpreters: dict[str, str]) -> bool:
    folder, implementation = find_implementation(variant)
    found = resolve(implementation, folder, interpreters)
    if isinstance(found, Missing):
        print(f"{variant}: {found.reason}")
    return not isinstance(found, Missing)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
