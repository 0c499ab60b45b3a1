"""The rows of a survey, and the JSON file that stores them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from encoder_conformance.platform.files import replace_file
from encoder_conformance.spec.reason import Kind

WHATEVER_IS_DECLARED: dict[Kind | None, str] = {
    "no-gradient": "No gradient is specified for what is declared",
    "predicted-in-size": "What is declared is predicted in size only, and an invariant asks for less",
}
"""Kind → one text for all reasons of the kind, whichever deviations a manifest declares."""


@dataclass(frozen=True)
class ReasonCount:
    """A reason why checks were not run or failed, with their number. `kind` is None for a failure."""

    kind: Kind | None
    text: str
    checks: int
    cases: str
    """A few of their layers and situations."""


@dataclass(frozen=True)
class DeviationCount:
    """A declared deviation that checks in one dtype showed, alone or with others."""

    deviation: str
    dtype: str
    checks: int
    cases: str
    sigma: float | None
    """The largest rms distance from the specification without the deviation, in σ; None if not finite."""


@dataclass(frozen=True)
class SurveyRow:
    """The results of one implementation in one configuration."""

    variant: str
    """In the syntax of `conform run --impl`."""
    implementation: str
    """The name of its folder."""
    choices: dict[str, str]
    passed: int
    """Number of `applicable` checks that passed or deviate as declared."""
    applicable: int
    rms: float | None
    """The largest rms of any tensor of a check that passed, in σ; None if none passed."""
    unsupported: list[ReasonCount]
    failed: list[ReasonCount]
    deviates: list[DeviationCount]
    versions: dict[str, str]


def kept(path: Path) -> dict[str, SurveyRow]:
    """The stored rows by variant; empty if there is no file."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["variant"]: _row(row) for row in rows}


def keep(path: Path, rows: dict[str, SurveyRow]) -> None:
    """Store rows, sorted by variant."""
    sorted_rows = [asdict(rows[variant]) for variant in sorted(rows)]
    replace_file(path, (json.dumps(sorted_rows, indent=1, ensure_ascii=False) + "\n").encode())


def _row(row: dict[str, Any]) -> SurveyRow:
    reasons = {key: [ReasonCount(**reason) for reason in row[key]] for key in ("unsupported", "failed")}
    return SurveyRow(**{**row, **reasons, "deviates": [DeviationCount(**count) for count in row["deviates"]]})
