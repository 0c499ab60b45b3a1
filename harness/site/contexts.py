"""What the templates show: plain values, in the words of the terminal."""

import shlex
from typing import Any

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.report.marks import MARKS
from encoder_conformance.report.repeating import repeat_command, reproduce_command
from encoder_conformance.report.sizes import format_sigma
from encoder_conformance.report.terminal import diagnosis_text
from encoder_conformance.results import Diagnosis
from encoder_conformance.site.columns import Column, RunFacts
from encoder_conformance.site.links import anchor, web_links
from encoder_conformance.site.scripts import script_context
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import load_deviations

MEANINGS = {
    Outcome.PASS: "conforms",
    Outcome.DEVIATES: "deviates as declared, verified",
    Outcome.UNSUPPORTED: "not asked, with a reason",
    Outcome.STALE: "a declared deviation is not seen",
    Outcome.INCONCLUSIVE: "holds for any input",
    Outcome.FAIL: "does not conform",
    Outcome.ERROR: "the adapter raised an exception",
    Outcome.CRASH: "the worker's process ended",
    Outcome.TIMEOUT: "no answer in time",
    Outcome.NOT_RUN: "the run ended before",
}
MOST_FAILURES = 60
_Tally = dict[str, int]


def legend() -> list[tuple[str, str, str]]:
    """Outcome, sign and meaning."""
    return [(outcome.value, MARKS[outcome], MEANINGS[outcome]) for outcome in Outcome]


def tally(counts: dict[Outcome, int]) -> _Tally:
    counted = Tally.of([outcome for outcome, count in counts.items() for _ in range(count)])
    return {
        "conforming": counted.conforming,
        "deviating": counted.deviating,
        "unexpected": counted.unexpected,
        "unsupported": counts.get(Outcome.UNSUPPORTED, 0),
        "applicable": counted.applicable,
    }


def total(column: Column) -> _Tally:
    together: dict[Outcome, int] = {}
    for counts in column.levels.values():
        for outcome, count in counts.items():
            together[outcome] = together.get(outcome, 0) + count
    return tally(together)


def verdict(counted: _Tally) -> str:
    """One sentence with both numbers."""
    good = counted["conforming"] + counted["deviating"]
    if not counted["applicable"]:
        return "Nothing was judged."
    declared = f", {counted['deviating']} of them with declared deviations" if counted["deviating"] else ""
    return f"{good} of {counted['applicable']} checks conform{declared}."


def diagnosis_context(each: Diagnosis) -> dict[str, Any]:
    """A diagnosis: the terminal's sentence, and its equations."""
    known = load_deviations()
    return {
        "dtype": each.dtype,
        "dtypes": each.dtype.split(", "),
        "confidence": each.confidence,
        "text": diagnosis_text(each).partition(f": {each.confidence}")[2].lstrip(": "),
        "cases": each.cases,
        "links": [name for name in each.deviations if name in known],
        "equations": [
            {
                "stage": one.stage,
                "found": one.found,
                "specified": one.specified,
                "rms": format_sigma(one.rms),
                "specified_rms": format_sigma(one.specified_rms),
            }
            for one in each.equations
        ],
    }


def row(column: Column) -> dict[str, Any]:
    """An implementation, as the first page lists it."""
    return {
        "label": column.label,
        "page": f"implementations/{column.slug}.html",
        "tally": total(column),
        "largest": "" if column.largest is None else format_sigma(column.largest),
        "versions": versions(column),
        "cut_short": column.run.cut_short,
        "diagnoses": [diagnosis_context(each) for each in column.diagnoses],
    }


def versions(column: Column) -> str:
    found = column.judged.versions
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "never started"


def machine(run: RunFacts) -> str:
    place = run.report.environment
    return (
        f"{place.processor}, {place.cpus} processors, {place.platform}, Python {place.python}, "
        f"conform {place.conform}, {place.threads_per_worker} thread{'s' * (place.threads_per_worker > 1)} each, "
        f"on {place.device}" + (f", seed {place.seed}" if place.seed else "")
    )


def page(column: Column) -> dict[str, Any]:
    """An implementation's own page."""
    known = load_deviations()
    counted = total(column)
    settings = [(name, str(value)) for name, value in column.judged.settings.items()]
    return {
        **row(column),
        "title": column.judged.title,
        "verdict": verdict(counted),
        "levels": [(level, tally(column.levels[level])) for level in LEVELS if level in column.levels],
        "shown": column.shown,
        "unexpected": [
            {
                "case": each.case,
                "dtype": each.dtype,
                "check": each.check,
                "outcome": each.outcome.value,
                "message": each.message,
                "anchor": anchor(case=each.case, impl=column.label),
            }
            for each in column.unexpected[:MOST_FAILURES]
        ],
        "more_unexpected": max(0, len(column.unexpected) - MOST_FAILURES),
        "failing_anchor": anchor(outcome="not as expected"),
        "deviations": [
            {
                "name": name,
                "count": count,
                "sentence": known[name].sentence if name in known else "",
                "links": web_links(known[name].links) if name in known else [],
            }
            for name, count in column.deviations.items()
        ],
        "reasons": sorted(column.reasons.items(), key=lambda item: -item[1]),
        "facts": [
            ("framework", column.judged.framework),
            ("versions", versions(column)),
            *settings,
            ("command", shlex.join(column.judged.command)),
            ("run", f"{column.run.name}: conform {shlex.join(column.run.report.arguments)}"),
            ("when", column.run.report.started),
            ("where", machine(column.run)),
        ],
        "script": script_context(column, command) if (command := smallest_command(column)) else None,
        "script_command": command,
    }


def smallest_command(column: Column) -> str:
    """The command that writes the smallest failing case; "" if none failed."""
    return reproduce_command(column.run.report, column.judged.name, "*", None) if column.unexpected else ""


def commands(column: Column) -> tuple[str, str]:
    """The commands that ask for a case again and that write it as a script, with {case} and {dtype} to be filled in."""
    report, name = column.run.report, column.judged.name
    again = (
        repeat_command(report, name, "{case}", "{dtype}").replace("'{case}'", "{case}").replace("'{dtype}'", "{dtype}")
    )
    script = reproduce_command(report, name, "{case}", "{dtype}")
    return again, script.replace("'{case}'", "{case}").replace("'{dtype}'", "{dtype}")
