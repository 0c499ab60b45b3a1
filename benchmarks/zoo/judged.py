"""`conform run --impl hf_encoders`, with both kinds of attention: a row for each published layer."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.zoo.results import Section
from encoder_conformance.judging.records import Record
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.outcome import EXPECTED, Outcome

_CONFORM = Path(sys.executable).with_name("conform")


ATTENTION = {"hf_encoders": "sdpa", "hf_encoders:attention=eager": "eager"}
"""Variant → the kind of attention that it asks for."""


def judged() -> tuple[Section, dict[str, str]]:
    """Every case of every published layer: layer → attention → its row; and the versions of what was asked."""
    with tempfile.TemporaryDirectory() as out:
        asked = [word for variant in ATTENTION for word in ("--impl", variant)]
        subprocess.run([str(_CONFORM), "run", *asked, "--level", "optional", "--quiet", "--out", out], check=False)
        report = read_report(Path(out))
    found: dict[str, dict[str, list[Record]]] = {}
    for record in report.records:
        of_layer = found.setdefault(record.case.partition("/")[0], {})
        of_layer.setdefault(ATTENTION[record.implementation], []).append(record)
    rows = {
        layer: {attention: _row(records) for attention, records in sorted(of_layer.items())}
        for layer, of_layer in sorted(found.items())
    }
    return rows, dict(report.implementations[0].versions)


def _row(records: list[Record]) -> dict[str, Any]:
    applicable = [record for record in records if record.outcome is not Outcome.UNSUPPORTED]
    if not applicable:
        return {"verdict": "refused", "why": records[0].message}
    wrong = [record for record in applicable if record.outcome not in EXPECTED]
    deviating = [record for record in applicable if record.outcome is Outcome.DEVIATES]
    errors = [record.rms for record in applicable if record.rms is not None]
    row: dict[str, Any] = {
        "verdict": "fails" if wrong else "deviates" if deviating else "conforms",
        "checks": len(applicable),
        "sigma": round(max(errors), 2),
    }
    if wrong:
        row["why"] = wrong[0].message
    if deviating:
        row["deviates"] = _deviations(deviating)
    return row


def _deviations(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Deviation → the formats in which it shows, and its largest distance from the specification without it, in σ."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        for deviation in record.deviations:
            row = found.setdefault(deviation, {"dtypes": [], "distance": 0.0})
            row["dtypes"] = sorted({*row["dtypes"], record.dtype})
            row["distance"] = float(f"{max(row['distance'], record.distance or 0.0):.2g}")
    return found
