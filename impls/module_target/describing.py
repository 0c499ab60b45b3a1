"""An examination as JSON: `encoder_conformance.wire.description.ModuleDescription`."""

from typing import Any

from encoder_conformance.impls.module_target.examination import Examination, facts_of
from encoder_conformance.impls.module_target.naming import misnamed

_LAYOUTS = {"BSD": "[batch, sequence, d_model]", "SBD": "[sequence, batch, d_model]", "SD": "[sequence, d_model]"}
_AXES = {"B": "batch", "H": "heads", "S": "sequence", "1": "1", "X": "batch · heads"}


def described(found: Examination) -> dict[str, Any]:
    semantics, exported = found.semantics, found.exported
    return {
        "type": found.module.type_name,
        "framework": found.framework.name,
        "versions": found.versions,
        "x": {
            "argument": found.module.signature.x,
            "layout": _LAYOUTS[semantics.layout],
            "d_model": semantics.d_model,
            "evidence": "changing one position of x changes others along this axis alone",
        },
        "masks": [
            {
                "argument": mask.name,
                "dtype": mask.dtype,
                "axes": mask.axes,
                "shape": f"[{', '.join(_AXES.get(axis, axis) for axis in mask.axes)}]",
                "meaning": mask.polarity.meaning,
                "evidence": f"a key flagged with {mask.polarity.shut:g} no longer changes any other position",
            }
            for mask in semantics.masks
            if mask.polarity
        ],
        "causal": semantics.causal,
        "always_causal": found.always_causal,
        "across_batch": semantics.across_batch,
        "layer": found.layer.model_dump(mode="json") if found.layer else None,
        "stated": found.stated.model_dump(mode="json") if found.stated else None,
        "facts": facts_of(found),
        "notes": [*exported.notes, *found.notes],
        "not_read": {"problem": exported.problem, "where": exported.where} if exported.problem else None,
        "unplaced": list(exported.unplaced),
        "parameters": {
            name: {
                **dict(zip(("own", "form"), found.map.source(name), strict=True)),
                "more": found.map.more.get(name, 0.0),
            }
            for name in found.map.elements
        }
        if found.map
        else {},
        "absent": list(found.absent),
        "unused": found.map.unused() if found.map else [],
        "aliases": dict(exported.own.aliases),
        "tied": [list(pair) for pair in found.tied],
        "read_twice": [list(each) for each in found.read_twice],
        "unread": [list(each) for each in found.unread],
        "misnamed": misnamed({name: found.map.source(name)[0] for name in found.map.elements}) if found.map else [],
        "proof": _proof(found),
        "searched": {
            "deviation": found.searched.deviation,
            "distance": found.searched.distance,
            "maps": found.searched.tried[0],
            "deviations": found.searched.tried[1],
        }
        if found.searched
        else None,
        "stages": {stage: place.module for stage, place in found.stages.items()},
        "dtypes": list(found.taken),
        "padded_item_is_nan": found.padded_item_is_nan,
        "narrow_inside": found.narrow_inside,
    }


def _proof(found: Examination) -> dict[str, Any] | None:
    proof = found.proof
    if proof is None:
        return None
    return {
        "holds": proof.holds,
        "dtype": found.dtypes[0],
        "rms": proof.rms,
        "moved": proof.moved,
        "of": proof.of,
        "wrong": list(proof.wrong),
        "inert": list(proof.inert),
        "problem": proof.problem,
    }
