"""The branches that an exporter was told of, for it has no numbers to branch on: they are kept in the export."""

import json
from collections.abc import Mapping

import onnx

from encoder_conformance.protocol.findings import Finding, noted

Told = bool | int | float
_KEY = "encoder_conformance.branches"


def keep_branches(model: onnx.ModelProto, told: Mapping[str, Told]) -> None:
    """`told`: `model.py:12: if torch.isnan(x).any():` → what was so there, as the exporter was told."""
    if told:
        model.metadata_props.add(key=_KEY, value=json.dumps(dict(told)))


def branches_noted(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """A note of the branches that an export was told of; none where it was told of none."""
    kept = next((each.value for each in model.metadata_props if each.key == _KEY), None)
    if kept is None:
        return ()
    told: dict[str, Told] = json.loads(kept)
    lines = "; ".join(f"{_said(each)} at {line}" for line, each in told.items())
    said = f"it branches on numbers that it computes, and is read as it goes with usual ones: {lines}"
    return (noted("branches-on-numbers", said, branches=told),)


def _said(told: Told) -> str:
    return json.dumps(told) if isinstance(told, bool) else f"{told:.6g}"
