"""What a row of the table holds, and the file that keeps all of them: docs/onnx.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.files import replace_file
from harness.paths import ROOT

KEPT = ROOT / "docs" / "onnx.json"


@dataclass(frozen=True)
class Reason:
    """Why some checks are not asked, or what of them failed."""

    text: str
    link: str
    checks: int
    cases: str
    """Layers and situations, a few of them."""


@dataclass(frozen=True)
class Row:
    variant: str
    """As `conform run --impl` takes it."""
    road: str
    choices: dict[str, str]
    passed: int
    applicable: int
    rms: float | None
    """The largest of any tensor of a check that passed, in σ; None where none did."""
    unsupported: list[Reason]
    failed: list[Reason]
    versions: dict[str, str]


def kept(path: Path = KEPT) -> dict[str, Row]:
    """By variant."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["variant"]: _row(row) for row in rows}


def keep(rows: dict[str, Row]) -> None:
    written = [asdict(rows[variant]) for variant in sorted(rows)]
    replace_file(KEPT, (json.dumps(written, indent=1, ensure_ascii=False) + "\n").encode())


def _row(row: dict) -> Row:  # type: ignore[type-arg]
    reasons = {key: [Reason(**reason) for reason in row[key]] for key in ("unsupported", "failed")}
    return Row(**{**row, **reasons})
