"""A run in numbers and names, for a program that decides by it."""

from dataclasses import asdict
from typing import Any

from encoder_conformance.judging.records import Diagnosis, Judged, Report
from encoder_conformance.judging.tally import Tally


def summary(report: Report) -> dict[str, Any]:
    """Counts of the run and of each implementation, with its causes. Sentences are left to `report.json`."""
    tally = Tally.of(record.outcome for record in report.records)
    return {
        "complete": report.complete,
        "ended_by": report.ended_by,
        "as_expected": report.complete and bool(tally.applicable) and not tally.unexpected,
        "checks": asdict(tally),
        "implementations": [_implementation(report, each) for each in report.implementations],
    }


def _implementation(report: Report, judged: Judged) -> dict[str, Any]:
    records = [record for record in report.records if record.implementation == judged.name]
    return {
        "name": judged.name,
        "versions": judged.versions,
        "checks": asdict(Tally.of(record.outcome for record in records)),
        "largest_rms": max((record.rms for record in records if record.rms is not None), default=None),
        "causes": [_cause(each) for each in report.diagnoses if each.implementation == judged.name],
    }


def _cause(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "dtype": diagnosis.dtype,
        "confidence": diagnosis.confidence,
        "deviations": list(diagnosis.deviations),
        "rms": diagnosis.rms,
        "first_stage": diagnosis.first_stage,
    }
