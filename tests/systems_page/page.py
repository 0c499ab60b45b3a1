"""The page: beside each command what it compares, the published number, and ours."""

from pathlib import Path

from systems_page.answers import Answer
from systems_page.lines import Line, Number, System, systems
from systems_page.numbers import read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "systems.md"
WITH_GOLDENS = {
    "output": "the output",
    "weights": "attention weights and output",
    "stages": "each stage that it shows",
    "gradients": "gradients by x and every parameter",
}
"""Check → what of it is compared with goldens."""
OTHERWISE = {
    "refusal": "what is wrong with a refusal, what is right with its golden",
    "dropout": "how much is dropped, and how independently, with the rates",
    "initialisation": "fresh parameters with Xavier's bounds, 0 and 1; their names with the specification's",
    "invariant": "the output with itself, asked in another way",
}
ITSELF = (
    *("checks", "sizes", "sequences", "lengths", "stages", "timed", "seen", "gradients", "layers"),
    *("row", "rows", "files", "blanks", "inputs"),
)
"""What needs no name beside it."""

NAMED = {
    "inside": "stages inside",
    "dropped": "rate seen after {}",
    "stated": "rate stated after {}",
    "gradient": "norm by {}",
    "own": "its name of {}",
    "formula": "numbers of {}",
    "saved": "saved by checkpointing",
    "costliest": "most expensive, as far as they are told apart",
}
"""What is said beside a number where its own name would not do."""


def compared(line: Line, answer: Answer) -> str:
    """What with what: as it is written, or what the checks of a run are."""
    if not line.is_run:
        return line.compares
    kinds = {record["check"] for record in answer.records}
    known = f" of the specification with {' and '.join(f'`{name}`' for name in line.deviates)}" if line.deviates else ""
    golden = ", ".join(said for kind, said in WITH_GOLDENS.items() if kind in kinds)
    parts = [f"{golden}, with the goldens{known}"] if golden else []
    parts += [said for kind, said in OTHERWISE.items() if kind in kinds]
    return f"{'; '.join(parts)} ({', '.join(line.options('dtype'))})"


def page(found: dict[str, Answer]) -> str:
    return _PAGE.format(systems="\n".join(_section(system, found) for system in systems()))


def _section(system: System, found: dict[str, Answer]) -> str:
    rows = "\n".join(_row(line, found[line.command]) for line in system.lines)
    return _SECTION.format(title=system.title, says=" ".join(system.says.split()), rows=rows)


def _row(line: Line, answer: Answer) -> str:
    ours = "; ".join(_named(number, read(number, line, answer)) for number in line.numbers)
    told = [number for number in line.numbers if number.published is not None]
    published = "; ".join(_named(number, str(number.published)) for number in told) or "–"
    why = "".join(f" ({number.differs})" for number in line.numbers if number.differs)
    return f"| {line.what} | `{line.command}` | {compared(line, answer)} | {published} | {ours}{why} |"


def _named(number: Number, value: str) -> str:
    name, _, rest = number.read.partition(" ")
    if name in ITSELF:
        return value
    return f"{(NAMED.get(name) or rest or name).format(rest).replace('_', ' ')}: {value}"


_PAGE = """# Five published encoders, and the command for each thing that they show

Five descriptions of the same component started this project. Each line below is something that one of them shows,
tests, or asks its reader to do. Beside it stand the command that does it, what the command compares with what, the
number that was published, and ours; `–` where the description gives no number. The page is made of
[systems.yaml](systems.yaml) and of what the commands answer, by `PYTHONPATH=tests python -m systems_page`.
`tests/frameworks/test_systems.py` asks them again, and compares ours with the published number to its last
printed digit.

`--impl` takes any implementation; without it a run asks every one that is installed. Checks are judged in σ
([how it judges](how-it-judges.md)).

{systems}"""
_SECTION = """## {title}

{says}

| what | command | compares | published | ours |
|---|---|---|---|---|
{rows}
"""
