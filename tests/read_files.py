"""What a reader finds in a file that a test wrote: its layer, which a run proves, or its errors."""

from pathlib import Path

import onnx

from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.spec.layer import Layer


def edited(body: str, *edits: tuple[str, str]) -> str:
    """The text of a graph with each part of it replaced, which it has."""
    for old, new in edits:
        assert old in body, old
        body = body.replace(old, new)
    return body


def read(model: onnx.ModelProto, folder: Path) -> Inspection:
    """The model written to `folder`/model.onnx, and read."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return inspect(path, None)


def layer_of(seen: Inspection) -> Layer:
    """The layer that is read, which a run proves."""
    assert seen.findings.errors() == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    assert {fact.key: fact.value for fact in seen.inferred.facts}["proved"]
    return seen.inferred.layer


def errors(seen: Inspection) -> str:
    """All errors, of which there is one at least."""
    found = [each.message for each in seen.findings.errors()]
    assert found
    return " ".join(found)
