"""What the pages say of runs and implementations, in the words of the terminal."""

import shlex
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.judging.tally import Tally
from encoder_conformance.reports.run.matrix import format_sigma
from encoder_conformance.reports.run.repeating import repeat_command, reproduce_command
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.reports.site.columns import Column, RunFacts
from encoder_conformance.spec.load import load_deviations


def web_links(links: Iterable[str]) -> list[str]:
    """The links that a browser only opens. A `javascript:` link would run."""
    return [link for link in links if link.startswith(("https://", "http://"))]


def anchor(**values: str) -> str:
    """The part of an address after #, as static/data.js reads it."""
    return urlencode(values)


def verdict(tally: Tally) -> str:
    """A sentence with the numbers of checks."""
    return f"{tally}." if tally.applicable else "Nothing was judged."


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


def machine(run: RunFacts) -> str:
    """The machine of a run, and how it was used."""
    place = run.report.environment
    return (
        f"{place.processor}, {place.cpus} processors, {place.platform}, Python {place.python}, "
        f"conform {place.conform}, {place.threads_per_worker} thread{'s' * (place.threads_per_worker > 1)} each, "
        f"on {place.device}" + (f", seed {place.seed}" if place.seed else "")
    )


def declared(name: str, count: int) -> dict[str, Any]:
    """A declared deviation, which so many checks show."""
    known = load_deviations().get(name)
    sentence, links = (known.sentence, web_links(known.links)) if known else ("", [])
    return {"name": name, "count": count, "sentence": sentence, "links": links}


def facts(column: Column) -> list[tuple[str, str]]:
    """Versions, settings, command and machine of an implementation."""
    return [
        ("framework", column.judged.framework),
        ("versions", column.versions),
        *((name, str(value)) for name, value in column.judged.settings.items()),
        ("command", shlex.join(column.judged.command)),
        ("run", f"{column.run.name}: {command_of(column.run)}"),
        ("when", column.run.report.started),
        ("where", machine(column.run)),
    ]


def command_of(run: RunFacts) -> str:
    """The command of a run."""
    return f"conform {shlex.join(run.report.arguments)}"


def commands(column: Column) -> tuple[str, str]:
    """The commands that ask for a case again and that write it as a script, with {case} and {dtype} to be filled in."""
    of = column.run.report, column.judged.name, "{case}", "{dtype}"
    texts = repeat_command(*of), reproduce_command(*of)
    again, script = (text.replace("'{case}'", "{case}").replace("'{dtype}'", "{dtype}") for text in texts)
    return again, script
