"""The numbered clauses of `specs/README.md`. A clause is a list item that opens with its id in bold."""

import re
from functools import cache

from encoder_conformance.paths import SPECS

_CLAUSE = re.compile(r"^- \*\*([A-Z]+-[0-9]+)\*\* (.+?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)


@cache
def clauses() -> dict[str, str]:
    """Clause id → text on one line, in the order of the specification."""
    text = (SPECS / "README.md").read_text(encoding="utf-8")
    texts: dict[str, str] = {}
    for clause_id, body in _CLAUSE.findall(text):
        assert clause_id not in texts, f"specs/README.md numbers two clauses {clause_id}"
        texts[clause_id] = " ".join(body.split())
    return texts
