"""Generates the JSON Schemas of the models in `specs/schema/`, with which editors complete and validate YAML."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from encoder_conformance.commands.check.results import CheckResult
from encoder_conformance.commands.diff.results import DiffResult, WholeDiffResult
from encoder_conformance.commands.validate.results import Validation
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.judging.records import Report
from encoder_conformance.oracle.golden.store import Manifest
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.protocol.messages import Answer, Built, Initialised, Request, Started
from encoder_conformance.spec.bases import BASE, OWN
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import Constants, Core
from encoder_conformance.spec.published import Published
from encoder_conformance.spec.situation import Situation
from encoder_conformance.spec.strict import Identifier

MODELS: tuple[type[BaseModel], ...] = (
    Layer, Situation, Deviation, Constants, Core, Published, Implementation, Manifest, Report,
)  # fmt: skip

DOCUMENTS: dict[str, Any] = {"check": CheckResult, "diff": DiffResult | WholeDiffResult, "validation": Validation}
"""Documents of results, which are written and not read back: `check.json` → its model. Every field is there."""


def schema_files() -> dict[Path, str]:
    """Path → content of each schema."""
    files = {}
    for name, model_schema in _model_schemas().items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model_schema}
        files[SPECS / "schema" / f"{name}.schema.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return files


def _model_schemas() -> dict[str, dict[str, Any]]:
    models = {model.__name__.lower(): model.model_json_schema() for model in MODELS}
    models["layer"] = _of_layer_file(models["layer"])
    wire: dict[str, Any] = {"request": Request, "answer": Started | Built | Initialised | Answer}
    models |= {f"wire-{name}": TypeAdapter(union).json_schema() for name, union in wire.items()}
    written = {name: TypeAdapter(model).json_schema(mode="serialization") for name, model in DOCUMENTS.items()}
    return models | written


def _of_layer_file(layer: dict[str, Any]) -> dict[str, Any]:
    """The schema of a layer file (rule L-4): every key is required where it has no base, and else its own ones."""
    below = {
        key: {"required": definition.pop("required", [])}
        for key, schema in layer["properties"].items()
        for name, definition in layer["$defs"].items()
        if f'"#/$defs/{name}"' in json.dumps(schema)
    }
    base = {
        **TypeAdapter(Identifier).json_schema(),
        "title": "Base",
        "description": "the layer that gives every key which this file does not (rule L-4)",
    }
    whole = [key for key in layer["required"] if key not in OWN]
    return {
        **layer,
        "properties": {**layer["properties"], BASE: base},
        "required": [key for key in OWN if key in layer["required"]],
        "if": {"not": {"required": [BASE]}},
        "then": {"required": whole, "properties": below},
    }
