"""Values for the templates, in the words of the terminal."""

import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.report.matrix import format_sigma
from encoder_conformance.report.repeating import repeat_command, reproduce_command
from encoder_conformance.report.terminal import diagnosis_text
from encoder_conformance.results import Diagnosis
from encoder_conformance.site.columns import Column, RunFacts
from encoder_conformance.site.scripts import script_context
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import load_deviations

MOST_FAILURES = 60


def web_links(links: Iterable[str]) -> list[str]:
    """The links that a browser only opens. A `javascript:` link would run."""
    return [link for link in links if link.startswith(("https://", "http://"))]


def anchor(**values: str) -> str:
    """The part of an address after #, as static/data.js reads it."""
    return urlencode(values)


def tally(outcomes: Counter[Outcome]) -> dict[str, int]:
    """The numbers of checks in a table's row."""
    counted = Tally.of(outcomes.elements())
    return {
        "conforming": counted.conforming,
        "deviating": counted.deviating,
        "unexpected": counted.unexpected,
        "unsupported": outcomes[Outcome.UNSUPPORTED],
    }


def verdict(outcomes: Counter[Outcome]) -> str:
    """A sentence with both numbers."""
    counted = Tally.of(outcomes.elements())
    return f"{counted}." if counted.applicable else "Nothing was judged."


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
        "tally": tally(column.point.outcomes),
        "largest": "" if column.largest is None else format_sigma(column.largest),
        "versions": versions(column),
        "cut_short": column.run.cut_short,
        "diagnoses": [diagnosis_context(each) for each in column.diagnoses],
    }


def versions(column: Column) -> str:
    """The versions of what an implementation is made with."""
    found = column.judged.versions
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "never started"


def machine(run: RunFacts) -> str:
    """The machine of a run, and how it was used."""
    place = run.report.environment
    return (
        f"{place.processor}, {place.cpus} processors, {place.platform}, Python {place.python}, "
        f"conform {place.conform}, {place.threads_per_worker} thread{'s' * (place.threads_per_worker > 1)} each, "
        f"on {place.device}" + (f", seed {place.seed}" if place.seed else "")
    )


def page(column: Column) -> dict[str, Any]:
    """An implementation's own page."""
    command = smallest_command(column)
    return {
        **row(column),
        "title": column.judged.title,
        "verdict": verdict(column.point.outcomes),
        "levels": [(level, tally(column.levels[level])) for level in LEVELS if level in column.levels],
        "shown": column.shown,
        "unexpected": [
            {
                **{name: getattr(each, name) for name in ("case", "dtype", "check", "outcome", "message")},
                "anchor": anchor(case=each.case, impl=column.label),
            }
            for each in column.unexpected[:MOST_FAILURES]
        ],
        "more_unexpected": max(0, len(column.unexpected) - MOST_FAILURES),
        "failing_anchor": anchor(outcome="not as expected"),
        "deviations": [_declared(name, count) for name, count in column.deviations.items()],
        "reasons": column.reasons.most_common(),
        "facts": _facts(column),
        "script": script_context(column, command) if command else None,
        "script_command": command,
    }


def _declared(name: str, count: int) -> dict[str, Any]:
    """A declared deviation, which so many checks show."""
    known = load_deviations().get(name)
    sentence, links = (known.sentence, web_links(known.links)) if known else ("", [])
    return {"name": name, "count": count, "sentence": sentence, "links": links}


def _facts(column: Column) -> list[tuple[str, str]]:
    return [
        ("framework", column.judged.framework),
        ("versions", versions(column)),
        *((name, str(value)) for name, value in column.judged.settings.items()),
        ("command", shlex.join(column.judged.command)),
        ("run", f"{column.run.name}: conform {shlex.join(column.run.report.arguments)}"),
        ("when", column.run.report.started),
        ("where", machine(column.run)),
    ]


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
