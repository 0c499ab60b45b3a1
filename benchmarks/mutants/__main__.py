"""Mutates, diagnoses, grades, and writes docs/mutants.md.

python -m benchmarks.mutants                                  all populations: an hour
python -m benchmarks.mutants --only output --count 40         one of them; the others stay as they are
python -m benchmarks.mutants --only stages --minutes 3 --on   goes on where the last call ended
"""

import argparse
import math
import time
from collections.abc import Iterable
from itertools import islice

from benchmarks.mutants.backward import backward_mutants, graded_backward
from benchmarks.mutants.code import code_mutants
from benchmarks.mutants.code_of_adapters import KERAS, PYTORCH
from benchmarks.mutants.code_of_jax import JAX
from benchmarks.mutants.grading import Grade, graded
from benchmarks.mutants.mutation import mutants, pairs
from benchmarks.mutants.page import PAGE, TITLES, Population, read, write

CODE = {"code": JAX, "code_pytorch": PYTORCH, "code_keras": KERAS}
COUNTS = {
    "stages": 1000,
    "output": 60,
    "pairs": 60,
    "output_pairs": 20,
    "backward": 60,
    "code": 100,
    "code_pytorch": 60,
    "code_keras": 60,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TITLES, help="one population")
    parser.add_argument("--count", type=int, help="mutants of each population")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="ends after the mutant that this time ends in")
    parser.add_argument("--on", action="store_true", help="go on with the kept mutants of this seed")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for name in [options.only] if options.only else TITLES:
        before = read().get(name)
        goes_on = options.on and before is not None and before.seed == options.seed
        found = before if goes_on and before else Population(options.seed)
        for grade in _grades(name, options.count or COUNTS[name], options.seed, found.count):
            found = found.having(grade)
            if grade.kind not in ("right", "equivalent"):
                print(f"{name} {found.count}: {grade.kind}: {grade.mutant}: {grade.stated}", flush=True)
            write({**read(), name: found})  # each by itself: what ends this program costs one mutant
            if time.monotonic() > until:
                break
    print(PAGE)


def _grades(name: str, count: int, seed: int, done: int) -> Iterable[Grade]:
    """Of the mutants after so many that are done."""
    if name == "backward":
        return graded_backward(islice(backward_mutants(count, seed), done, None))
    if name in CODE:
        return graded(islice(code_mutants(CODE[name], count, seed), done, None), output_only=False)
    drawn = (pairs if name.endswith("pairs") else mutants)(count, seed)
    return graded(islice(drawn, done, None), output_only=name.startswith("output"))


if __name__ == "__main__":
    main()
