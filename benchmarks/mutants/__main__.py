"""Mutates, diagnoses, grades, and writes docs/mutants.md.

python -m benchmarks.mutants                            all populations: half an hour
python -m benchmarks.mutants --only output --count 40   one of them; the others stay as they are
"""

import argparse

from benchmarks.mutants.grading import Grade, graded
from benchmarks.mutants.mutation import mutants, pairs
from benchmarks.mutants.page import PAGE, TITLES, population, read, write

COUNTS = {"stages": 150, "output": 50, "pairs": 40}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TITLES, help="one population")
    parser.add_argument("--count", type=int, help="mutants of each population")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kept = read()
    for name in [options.only] if options.only else TITLES:
        count = options.count or COUNTS[name]
        drawn = (pairs if name == "pairs" else mutants)(count, options.seed)
        grades = list[Grade]()
        for grade in graded(drawn, output_only=name == "output"):
            grades.append(grade)
            if grade.kind not in ("right", "equivalent"):
                print(f"{name} {len(grades)}: {grade.kind}: {grade.mutant}: {grade.stated}", flush=True)
        kept[name] = population(grades, options.seed)
        write(kept)
    print(PAGE)


if __name__ == "__main__":
    main()
