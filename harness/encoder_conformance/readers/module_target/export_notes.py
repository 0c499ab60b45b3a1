"""Notes of how a module was exported, which are kept in the export."""

import onnx

from encoder_conformance.protocol.findings import Finding

_KEY = "encoder_conformance.note"


def keep_note(model: onnx.ModelProto, note: Finding) -> None:
    model.metadata_props.add(key=f"{_KEY}.{note.kind}", value=note.model_dump_json())


def kept_notes(model: onnx.ModelProto) -> tuple[Finding, ...]:
    kept = (each.value for each in model.metadata_props if each.key.startswith(_KEY))
    return tuple(map(Finding.model_validate_json, kept))
