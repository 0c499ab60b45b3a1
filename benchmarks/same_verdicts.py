"""Whether two runs judged alike, to the last digit: what a change of the harness' own code has to show.

    python benchmarks/same_verdicts.py BEFORE/report.json AFTER/report.json

Compares outcome, rms, max, stage and deviations of each check that both runs judged, and prints those that differ, with
how many were compared. Exit status: 0 all are alike; 1 one differs; 2 there is nothing to compare, or wrong usage.
"""

import json
import sys
from pathlib import Path
from typing import Any

COMPARED = ("outcome", "rms", "max", "stage", "deviations")
Key = tuple[str, ...]


def judged(path: Path) -> dict[Key, dict[str, Any]]:
    """The records of a report by what was asked, but for those that were not."""
    records = json.loads(path.read_text(encoding="utf-8"))["records"]
    asked = [record for record in records if record["outcome"] != "not-run"]
    return {tuple(record[name] for name in ("implementation", "case", "dtype", "check")): record for record in asked}


def main(before: Path, after: Path) -> int:
    one, other = judged(before), judged(after)
    both = [key for key in one if key in other]
    differ = {key: [name for name in COMPARED if one[key].get(name) != other[key].get(name)] for key in both}
    for key, names in differ.items():
        for name in names:
            print(f"{' '.join(key)}: {name} was {one[key].get(name)}, and is {other[key].get(name)}")
    unlike = sum(map(bool, differ.values()))
    implementations = len({key[0] for key in both})
    print(f"{len(both) - unlike} of {len(both)} checks of {implementations} implementations are judged alike")
    return 2 if not both else int(unlike > 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
