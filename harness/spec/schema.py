"""The JSON Schemas that the models emit, committed in `specs/schema/` so that editors complete and validate the YAML.

python -m harness.spec.schema          writes them; a test checks that they have not drifted
"""

import json
from pathlib import Path

from pydantic import BaseModel

from harness.golden.store import Manifest
from harness.impl.manifest import Implementation
from harness.paths import SPECS
from harness.report.model import Report
from harness.spec.constants import Constants
from harness.spec.layer import Layer
from harness.spec.situation import Situation

MODELS: tuple[type[BaseModel], ...] = (Layer, Situation, Constants, Implementation, Manifest, Report)


def schema_files() -> dict[Path, str]:
    """Path → content of each schema."""
    files = {}
    for model in MODELS:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        name = f"{model.__name__.lower()}.schema.json"
        files[SPECS / "schema" / name] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return files


if __name__ == "__main__":
    for path, content in schema_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
