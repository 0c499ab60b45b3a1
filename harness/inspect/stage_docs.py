"""A description of each stage, from the table of clause T-1 in `specs/README.md`."""

import re
from functools import cache

from encoder_conformance.paths import SPECS

_ROW = re.compile(r"^\| (`[a-z0-9_`, ]+`) \| \[B, [A-Za-z, ]+\] \| (.+?) \|$", re.MULTILINE)
_HEADING = "| stage | shape | what it is |"


@cache
def stage_notes() -> dict[str, str]:
    """Stage → description."""
    table = (SPECS / "README.md").read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n\n")[0]
    return {name: note for names, note in _ROW.findall(table) for name in re.findall(r"[a-z0-9_]+", names)}
