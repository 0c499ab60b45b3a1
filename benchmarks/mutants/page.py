"""docs/mutants.md: the counts of each population, and every mutant whose equation was not found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import median

from benchmarks.mutants.grading import Grade

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, KEPT = DOCS / "mutants.md", DOCS / "mutants.json"
TITLES = {
    "stages": "one mutant, stages shown",
    "output": "one mutant, the output alone",
    "pairs": "two mutants, stages shown",
    "output_pairs": "two mutants, the output alone",
    "backward": "one mutant of the backward pass",
    "code": "one mutant of the code of our JAX encoder",
    "code_pytorch": "one mutant of the code of our PyTorch encoder",
    "code_keras": "one mutant of the code of our Keras encoder",
}


@dataclass(frozen=True)
class Population:
    """`kinds` counts grades, `layers` counts mutants by layer, and `seconds` diagnoses by their length, to a tenth;
    `missed` are those that are neither right nor equivalent. `mistakes` counts those that are caught by their kind of
    mistake, and `found` those of them that are right."""

    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    layers: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)
    missed: list[dict[str, str]] = field(default_factory=list)
    mistakes: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    @property
    def caught(self) -> int:
        return self.count - self.kinds.get("equivalent", 0)

    def having(self, grade: Grade) -> "Population":
        """With one more."""
        more = replace(
            self, kinds=_counted(self.kinds, grade.kind), layers=_counted(self.layers, grade.mutant.partition(" ")[0])
        )
        if grade.kind == "equivalent":
            return more
        missed = [] if grade.kind == "right" else [{"kind": grade.kind, "mutant": grade.mutant, "stated": grade.stated}]
        return replace(
            more,
            steps=self.steps + grade.step,
            seconds=_counted(self.seconds, f"{grade.seconds:.1f}"),
            missed=self.missed + missed,
            mistakes=_counted(self.mistakes, grade.mistake),
            found=_counted(self.found, grade.mistake) if grade.kind == "right" else self.found,
        )


def _counted(counts: Mapping[str, int], name: str) -> dict[str, int]:
    found = {**counts, name: counts.get(name, 0) + 1}
    return dict(sorted(found.items()))


def read() -> dict[str, Population]:
    if not KEPT.is_file():
        return {}
    return {name: Population(**kept) for name, kept in json.loads(KEPT.read_text(encoding="utf-8")).items()}


def write(populations: Mapping[str, Population]) -> None:
    kept = {name: asdict(populations[name]) for name in TITLES if name in populations}
    new = KEPT.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(KEPT)
    PAGE.write_text(page(populations), encoding="utf-8")


def page(populations: Mapping[str, Population]) -> str:
    rows, missed = list[str](), list[str]()
    for name, title in TITLES.items():
        if found := populations.get(name):
            rows.append(_row(title, found))
            missed += [f"- {title}, {one['kind']}: `{one['mutant']}`{_stated(one['stated'])}" for one in found.missed]
    return _PAGE.format(rows="\n".join(rows), mistakes="\n".join(_by_mistake(populations)), missed="\n".join(missed))


def _by_mistake(populations: Mapping[str, Population]) -> Iterator[str]:
    """One line for each population of equations: how many of each kind of mistake were found, of those caught."""
    for name in ("stages", "output"):
        if name in populations and (caught := populations[name].mistakes):
            found = populations[name].found
            counts = ", ".join(f"{kind or 'one node'} {found.get(kind, 0)}/{n}" for kind, n in caught.items())
            yield f"- {TITLES[name]}: {counts}"


def _stated(text: str) -> str:
    return f", stated: `{text}`" if text else ""


def _row(title: str, found: Population) -> str:
    caught = found.caught
    right, false = found.kinds.get("right", 0), found.kinds.get("false", 0)
    misled = "–" if "closest" in found.kinds else found.kinds.get("closest-wrong", 0)  # it was not counted once
    took = sorted(chain.from_iterable([float(length)] * n for length, n in found.seconds.items()))
    left = sum(found.kinds.get(kind, 0) for kind in ("closest", "closest-right", "unknown"))
    seconds = f"{median(took):.1f} / {took[-1]:.1f}"
    cells = (
        title,
        found.count,
        len(found.layers),
        found.seed,
        caught,
        f"{right} ({right / caught:.1%})",
        f"{found.steps} ({found.steps / caught:.1%})",
        left,
        misled,
        false,
        seconds,
    )
    return f"| {' | '.join(map(str, cells))} |"


_PAGE = """# Mutants: bugs that no list has

`python -m benchmarks.mutants` writes this page. It mutates the specified equation of a stage at random, by one kind of
mistake after the other (`benchmarks/mutants/mistakes.py`), lets the oracle compute the mutant in float32, and shows a
diagnosis up to nine cases of it. A diagnosis is *right* where it
says "explained" and the equation that it states gives the mutant's output in two cases that it was not shown. It is
*false* where it says "explained" and that is not so. A closest is *wrong* unless each stage that it changes is the
mutant's. Mutants that change nothing that is compared are not counted as
caught; all others are caught. *Right step* counts diagnoses that are right, or whose first wrong stage is the
mutated one (of code: one that the mutated function computes). Mutants of code change one node of the syntax tree of
the encoder in `impls/jax_pure`, run over NumPy, in `impls/pytorch` and in `impls/keras_tf`, run by their frameworks;
those that raise an error are not counted. Seconds are of the processor, the median and the largest of one diagnosis. A
population may have been drawn in several calls (`--on`), each with the code of its day.

| population | mutants | of layers | seed | caught | right | right step | left open | closest, wrong | false | seconds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

## Found, of those caught, by kind of mistake

{mistakes}

Populations that are not named here were drawn when there was the first kind alone, an operation.

## Mutants whose equation was not found

{missed}
"""
