"""The smallest failing case of an implementation as a script of its framework alone, to be copied from its page."""

from pathlib import Path
from typing import Any

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.reproduce.failure import failure_of
from encoder_conformance.reports.reproduce.script import script_of
from encoder_conformance.reports.run.repeating import reproduce_command
from encoder_conformance.reports.site.columns import Column


def smallest_command(column: Column) -> str:
    """The command that writes the smallest failing case; "" if none failed."""
    return reproduce_command(column.run.report, column.judged.name, "*", None) if column.unexpected else ""


def script_context(column: Column) -> dict[str, Any] | None:
    """Case, dtype, path and text of a script; None where nothing failed, or none can be made here.

    It is made of the adapter's source as it is now. Nothing is run, and no framework is needed: what exports a file
    first is left to `conform reproduce`.
    """
    if not column.unexpected:
        return None
    report = column.run.report.model_copy(update={"records": tuple(column.unexpected)})
    name, _, choices = column.judged.name.partition(":")
    folder = Path(column.judged.folder)
    known = folder if folder.name == name and (folder / "impl.yaml").is_file() else name
    try:
        parse_variant(column.judged.name)
        found, implementation = find_implementation(f"{known}{':' if choices else ''}{choices}")
        if implementation.command[0] != "python" or implementation.capabilities.export:
            return None
        failure = failure_of(report, "*", None, Ready(implementation, found, implementation.command))
        text = script_of(failure)
    except InputError:
        return None
    record = failure.record
    return {"case": record.case, "dtype": record.dtype, "path": f"scripts/{column.slug}.py", "text": text}
