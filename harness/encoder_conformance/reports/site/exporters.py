"""The page of the exporters: what became of each configuration of those that took part."""

from collections.abc import Iterable
from typing import Any

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.site.columns import Column


def exporters_context(columns: Iterable[Column]) -> dict[str, Any]:
    """The values of the page: for each exporter its choices, and a column of each configuration."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        name, _ = parse_variant(column.judged.name)
        if _exports(name):
            by_name.setdefault(name, []).append(column)
    return {"exporters": [_exporter(name, of_it) for name, of_it in by_name.items()]}


def _exports(name: str) -> bool:
    """Whether an implementation of this name exports files. One that is not installed here is not known to."""
    folder = known_folders().get(name)
    try:
        return folder is not None and read_implementation_manifest(folder).capabilities.export
    except InputError:
        return False


def _exporter(name: str, columns: list[Column]) -> dict[str, Any]:
    manifest = read_implementation_manifest(known_folders()[name])
    choices = [choice.name for choice in manifest.choices]
    return {"name": name, "title": manifest.title, "choices": choices, "columns": columns}
