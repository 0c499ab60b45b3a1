"""The numbered clauses of `specs/README.md`: a clause is a list item that opens with its number in bold."""

import re
from functools import cache

from encoder_conformance.paths import SPECS

_CLAUSE = re.compile(r"^- \*\*([A-Z]+-[0-9]+)\*\* (.+?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)


@cache
def clauses() -> dict[str, str]:
    """Clause id → its text, on one line, in the order of the specification."""
    text = (SPECS / "README.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for name, body in _CLAUSE.findall(text):
        assert name not in found, f"specs/README.md numbers two clauses {name}"
        found[name] = " ".join(body.split())
    return found
