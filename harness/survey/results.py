"""What a row holds, and the file that keeps all rows of a table."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from encoder_conformance.files import replace_file
from encoder_conformance.reason import Kind

WHATEVER_IS_DECLARED: dict[Kind | None, str] = {
    "no-gradient": "No gradient is specified for what is declared",
    "predicted-in-size": "What is declared is predicted in size only, and an invariant asks for less",
}
"""One text for each kind of reason that names the deviations that a manifest declares."""


@dataclass(frozen=True)
class ReasonCount:
    """Why some checks are not asked, or what of them failed. The manifest has the link. `kind` is null of a failure."""

    kind: Kind | None
    text: str
    checks: int
    cases: str
    """Layers and situations, a few of them."""


@dataclass(frozen=True)
class Seen:
    """A declared deviation that checks in one dtype showed, by itself or beside others."""

    deviation: str
    dtype: str
    checks: int
    cases: str
    sigma: float | None
    """The largest distance from the specification without what is declared, rms; None where no number says it (NaN)."""


@dataclass(frozen=True)
class Row:
    variant: str
    """As `conform run --impl` takes it."""
    implementation: str
    """The folder's name."""
    choices: dict[str, str]
    passed: int
    """Of `applicable`, with those that deviate as declared."""
    applicable: int
    rms: float | None
    """The largest of any tensor of a check that passed, in σ; None where none did."""
    unsupported: list[ReasonCount]
    failed: list[ReasonCount]
    deviates: list[Seen]
    versions: dict[str, str]


def kept(path: Path) -> dict[str, Row]:
    """By variant."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["variant"]: _row(row) for row in rows}


def keep(path: Path, rows: dict[str, Row]) -> None:
    written = [asdict(rows[variant]) for variant in sorted(rows)]
    replace_file(path, (json.dumps(written, indent=1, ensure_ascii=False) + "\n").encode())


def _row(row: dict[str, Any]) -> Row:
    reasons = {key: [ReasonCount(**reason) for reason in row[key]] for key in ("unsupported", "failed")}
    return Row(**{**row, **reasons, "deviates": [Seen(**seen) for seen in row["deviates"]]})
