"""`conform run --update-declared`: brings an implementation's list of deviations up to what a full run showed."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.judging.records import Report
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.files import replace_file
from encoder_conformance.spec.outcome import Outcome


@contextmanager
def edited(path: Path) -> Iterator[dict[str, Any]]:
    """The content of a YAML file, {} if there is none; as the block leaves it, it is written back, comments and all."""
    from ruamel.yaml import YAML  # few commands edit a file, and every check imports what can

    yaml = YAML()
    yaml.width = 120
    content = yaml.load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    yield content
    text = io.StringIO()
    yaml.dump(content, text)
    replace_file(path, text.getvalue().encode())


def proposed(report: Report, implementation: Implementation) -> list[str]:
    """The deviations it should declare: those it declares that are not stale, and those that explain its failures."""
    records = [record for record in report.records if record.implementation == implementation.name]
    stale = any(record.outcome == Outcome.STALE for record in records)
    ids = [] if stale else [entry.deviation for entry in implementation.deviations]
    for diagnosis in report.diagnoses:
        if diagnosis.implementation == implementation.name and diagnosis.confidence == "explained":
            ids += [name for name in diagnosis.deviations if name in catalogue() and name not in ids]
    return ids


ReasonOf = Callable[[str], str | None]
"""Deviation → why the implementation deviates, which only its author knows; None where nobody says."""


def update_declared(report: Report, implementation: Implementation, folder: Path, reason_of: ReasonOf) -> list[str]:
    """Write the list into impl.yaml, where it differs; comments and every other key stay. Gives what was changed: `+`
    declared, `-` declared no more, `?` not declared, because there is no reason."""
    before = [entry.deviation for entry in implementation.deviations]
    wanted = proposed(report, implementation)
    reasons = {name: reason for name in wanted if name not in before and (reason := reason_of(name))}
    ids = [name for name in wanted if name in before or name in reasons]
    without = [f"? {name}" for name in wanted if name not in ids]
    if ids == before:
        return without
    # Without the catalogue's links, which are about other projects.
    new = {
        name: {"deviation": name, "reason": reason, "link": implementation.homepage} for name, reason in reasons.items()
    }
    with edited(folder / "impl.yaml") as manifest:
        listed = {entry["deviation"]: entry for entry in manifest["deviations"]}
        of_others = [entry for name, entry in listed.items() if name not in before and name not in ids]
        manifest["deviations"] = [*(listed.get(name) or new[name] for name in ids), *of_others]
    return changes(before, ids) + without


def changes(before: Sequence[str], ids: Sequence[str]) -> list[str]:
    """A line for each deviation that a list has now and had not, `+`, and for each that it has no more, `-`."""
    return [f"+ {name}" for name in ids if name not in before] + [f"- {name}" for name in before if name not in ids]
