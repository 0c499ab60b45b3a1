"""Phase `interface`: x, the masks and the output. The worker finds; here are their names."""

from encoder_conformance.validate.evidence import Assessment, Evidence

_MEANINGS = {"attend": "true = attend", "ignore": "true = ignore", "additive": "added to the scores"}


def assess(evidence: Evidence) -> Assessment:
    description = evidence.description
    roles = description.roles
    if description.file is None or roles is None:
        return Assessment()
    masks = [
        f"mask {mask.name!r} {description.port(mask.name).shape_text or 'of any rank'} ({_MEANINGS[mask.meaning]})"
        for mask in roles.masks
        if mask.meaning
    ]
    x, output = description.port(roles.x), description.port(roles.output)
    ports = [f"x {x.name!r} {x.dtype}", *(masks or ["no mask"]), f"output {output.name!r} {output.dtype}"]
    return Assessment(", ".join(ports))
