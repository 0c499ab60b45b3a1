"""How long does a command take that judges nothing?"""

import re
import sys
from functools import partial
from pathlib import Path

from benchmarks.performance.measuring import Took, command, in_turns, ratios
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "How long do commands take that judge nothing, and what do they import? Beside them Python alone, and the "
    "import of the packages that reading the specification needs: numpy, pydantic and yaml."
)
REPEATS = 11
COMMANDS = {
    "help": ("`conform --help`", ("-m", "encoder_conformance.commands.main", "--help")),
    "run-help": ("`conform run --help`", ("-m", "encoder_conformance.commands.main", "run", "--help")),
    "list-cases": ("`conform list cases`", ("-m", "encoder_conformance.commands.main", "list", "cases")),
    "list-impls": ("`conform list impls`", ("-m", "encoder_conformance.commands.main", "list", "impls")),
    "python": ("Python alone", ("-c", "pass")),
    "packages": ("Python and numpy, pydantic, yaml", ("-c", "import numpy, pydantic, yaml")),
}
_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+(\d+) \| (\S+)$")
"""A line of -X importtime that is of no other's import: one blank before the name."""
_HEAVIEST = 4


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    contenders = {id: partial(took, words, scratch) for id, (_, words) in COMMANDS.items()}
    in_turns(contenders, 1)  # compiles what was never imported
    turns = in_turns(contenders, REPEATS)
    taken = {id: [one.wall for one in each] for id, each in turns.taken.items()}
    figures: list[Figure] = [
        median_of(id, what, "milliseconds", [1000 * wall for wall in taken[id]]) for id, (what, _) in COMMANDS.items()
    ]
    against = ratios(taken["list-cases"], taken["packages"])
    figures.append(median_of("list-against", "`conform list cases` / Python and its packages", "ratio", against))
    notes = tuple(imported(id, scratch) for id in ("help", "list-cases"))
    return Measured({"commands": "each with its bytecode compiled"}, tuple(figures), turns.others, notes)


def took(words: tuple[str, ...], scratch: Path) -> Took:
    return command([sys.executable, *words], scratch / "log")


def imported(id: str, scratch: Path) -> str:
    """How many modules a command imports, and which of those that it asks for itself take longest."""
    what, words = COMMANDS[id]
    took(("-X", "importtime", *words), scratch)
    lines = (scratch / "log").read_text().splitlines()
    count = sum(line.startswith("import time:") for line in lines) - 1  # the heading
    own = sorted(((int(found[1]), found[2]) for line in lines if (found := _IMPORTED.match(line))), reverse=True)
    heaviest = ", ".join(f"{name} {micro / 1000:.0f} ms" for micro, name in own[:_HEAVIEST])
    return f"{what} imports {count} modules; longest, with what they import themselves: {heaviest}."
