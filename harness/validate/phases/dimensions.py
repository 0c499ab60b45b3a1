"""Phase `dimensions`: batch and sequence are free. The worker finds; here is what the file declares."""

from encoder_conformance.validate.evidence import Assessment, Evidence


def assess(evidence: Evidence) -> Assessment:
    description = evidence.description
    if description.file is None or description.roles is None:
        return Assessment()
    sizes = dict(zip(("batch", "sequence"), description.sizes(), strict=True))
    declared = [f"{name} fixed to {size}" for name, size in sizes.items() if size is not None]
    if free := [name for name, size in sizes.items() if size is None]:
        declared.append(f"{' and '.join(free)} declared free")
    x = description.port(description.roles.x)
    return Assessment(f"{', '.join(declared)}; x {x.shape_text or 'of any rank'}")
