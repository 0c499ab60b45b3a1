"""One check in a process of its own, for `from_python`: `python -m encoder_conformance.module_check.separate FILE`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from encoder_conformance.errors import InputError
from encoder_conformance.module_check.checking import Checking
from encoder_conformance.module_check.declared import declared_from
from encoder_conformance.module_check.stated import CheckRequest
from encoder_conformance.progress import SILENT
from encoder_conformance.spec.layer import Layer

REQUEST, RESULT, PROBLEM = "request.json", "result.json", "problem.json"


def write_request(request: CheckRequest, folder: Path, jobs: int | None) -> Path:
    """The file that `main` reads; result and problem come to lie beside it."""
    fields: dict[str, Any] = {
        "target": request.target,
        "arguments": dict(request.arguments),
        "folder": str(request.folder),
        "at": request.at,
        "layer": request.layer.model_dump(mode="json") if request.layer else None,
        "resize": request.resize,
        "like": request.like,
        "level": request.level,
        "dtypes": list(request.dtypes),
        "declared": [each.deviation for each in request.declared],
        "jobs": jobs or os.cpu_count() or 1,
    }
    path = folder / REQUEST
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


def read_request(path: Path) -> CheckRequest:
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["folder"] = Path(fields["folder"])
    if fields["layer"] is not None:
        fields["layer"] = Layer.model_validate_json(json.dumps(fields["layer"]))
    fields["dtypes"] = tuple(fields["dtypes"])
    return CheckRequest(**{**fields, "declared": declared_from(fields["declared"])})


def main(path: Path) -> None:
    folder = path.parent
    try:
        result = Checking(read_request(path), folder / "check.log", SILENT).result()
    except InputError as error:
        problem = {"problem": error.problem, "where": error.where, "hint": error.hint}
        (folder / PROBLEM).write_text(json.dumps(problem), encoding="utf-8")
    else:
        (folder / RESULT).write_text(result.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
