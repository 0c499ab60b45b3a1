"""What docs/zoo.json keeps: each section is written by one command of its own, and the others stay as they are."""

import json
from pathlib import Path
from typing import Any

from encoder_conformance.platform.files import replace_file

DOCS = Path(__file__).resolve().parents[2] / "docs"
KEPT = DOCS / "zoo.json"
Section = dict[str, dict[str, Any]]
"""Layer, or name of a row → what was seen."""


def read() -> dict[str, Any]:
    """The sections by name; {} where nothing is kept."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    return found


def keep(section: str, rows: Section, versions: dict[str, str]) -> None:
    """Replace one section, with the versions of what was asked."""
    kept = {**read(), section: {"versions": versions, "rows": rows}}
    text = json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False)
    replace_file(KEPT, f"{text}\n".encode())


def keep_row(section: str, name: str, row: dict[str, Any], versions: dict[str, str]) -> None:
    """Replace one row of a section, and print it."""
    print(f"{name:<30} {row}", flush=True)
    kept = read().get(section, {"versions": {}, "rows": {}})
    keep(section, dict(sorted({**kept["rows"], name: row}.items())), {**kept["versions"], **versions})


def beside(name: str) -> list[dict[str, Any]]:
    """The rows of another page's figures, such as docs/published_encoders.json; [] where there are none yet."""
    path = DOCS / name
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return rows
