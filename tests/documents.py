"""Documents of results: check.json, diff.json and validation.json, as a program reads them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from encoder_conformance.platform.paths import SPECS

_NAMES = {
    "encoder-conformance check": "check",
    "encoder-conformance diff": "diff",
    "encoder-conformance diff of outputs": "diff",
    "encoder-conformance validation": "validation",
}
"""What a document says of itself → the name of its schema."""


def read_document(path: Path) -> Any:
    """The document, once it is what its schema says; None where there is none."""
    return as_its_schema_says(path.read_text(encoding="utf-8")) if path.is_file() else None


def as_its_schema_says(text: str) -> Any:
    found = json.loads(text)
    problem = next(_schema(_NAMES[found["format"]]).iter_errors(found), None)
    assert problem is None, f"{problem.json_path}: {problem.message[:300]}"
    return found


def kinds_in(document: Any) -> set[str]:
    """The kinds of the findings, of a check in all of its parts."""
    return {each["kind"] for part in document.get("parts", [document]) for each in part["findings"]}


@cache
def _schema(name: str) -> jsonschema.Draft202012Validator:
    text = (SPECS / "schema" / f"{name}.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))
