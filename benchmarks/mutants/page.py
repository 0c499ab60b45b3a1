"""docs/mutants.md: the counts of each population, and every mutant whose equation was not found."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.mutants.grading import Grade

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, KEPT = DOCS / "mutants.md", DOCS / "mutants.json"
TITLES = {
    "stages": "one mutant, stages shown",
    "output": "one mutant, the output alone",
    "pairs": "two mutants, stages shown",
}


@dataclass(frozen=True)
class Population:
    """`kinds` counts grades; `missed` are those that are neither right nor equivalent."""

    count: int
    seed: int
    kinds: dict[str, int]
    steps: int
    median_seconds: float
    most_seconds: float
    missed: list[dict[str, str]]


def population(grades: Sequence[Grade], seed: int) -> Population:
    caught = [grade for grade in grades if grade.kind != "equivalent"]
    missed = [grade for grade in caught if grade.kind != "right"]
    return Population(
        count=len(grades),
        seed=seed,
        kinds=dict(Counter(grade.kind for grade in grades)),
        steps=sum(grade.step for grade in caught),
        median_seconds=median(grade.seconds for grade in caught),
        most_seconds=max(grade.seconds for grade in caught),
        missed=[{"kind": grade.kind, "mutant": grade.mutant, "stated": grade.stated} for grade in missed],
    )


def read() -> dict[str, Population]:
    if not KEPT.is_file():
        return {}
    return {name: Population(**kept) for name, kept in json.loads(KEPT.read_text(encoding="utf-8")).items()}


def write(populations: Mapping[str, Population]) -> None:
    kept = {name: asdict(populations[name]) for name in TITLES if name in populations}
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(populations), encoding="utf-8")


def page(populations: Mapping[str, Population]) -> str:
    rows, missed = list[str](), list[str]()
    for name, title in TITLES.items():
        if found := populations.get(name):
            rows.append(_row(title, found))
            missed += [f"- {title}, {one['kind']}: `{one['mutant']}`{_stated(one['stated'])}" for one in found.missed]
    return _PAGE.format(rows="\n".join(rows), missed="\n".join(missed))


def _stated(text: str) -> str:
    return f", stated: `{text}`" if text else ""


def _row(title: str, found: Population) -> str:
    caught = found.count - found.kinds.get("equivalent", 0)
    right, false = found.kinds.get("right", 0), found.kinds.get("false", 0)
    left = found.kinds.get("closest", 0) + found.kinds.get("unknown", 0)
    seconds = f"{found.median_seconds:.1f} / {found.most_seconds:.1f}"
    cells = (
        title,
        found.count,
        found.seed,
        caught,
        f"{right} ({right / caught:.1%})",
        found.steps,
        left,
        false,
        seconds,
    )
    return f"| {' | '.join(map(str, cells))} |"


_PAGE = """# Mutants: bugs that no list has

`python -m benchmarks.mutants` writes this page. It mutates the specified equation of a stage at random, lets the
oracle compute the mutant in float32, and shows a diagnosis eight cases of it. A diagnosis is *right* where it says
"explained" and the equation that it states gives the mutant's output in two cases that it was not shown. It is *false*
where it says "explained" and that is not so. Mutants that change nothing that is compared are not counted as caught;
all others are caught. Seconds are the median and the largest of one diagnosis.

| population | mutants | seed | caught | right | right step | left open | false | seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

## Mutants whose equation was not found

{missed}
"""
