"""The phases that the worker finds, by looking into the file: here are a few words on each, from its description."""

from encoder_conformance.commands.validate.evidence import Assessment, ValidationEvidence
from encoder_conformance.protocol.arguments import MEANINGS
from encoder_conformance.protocol.description import FileFacts

_SHOWN = 4
"""Types of operators."""


def file(evidence: ValidationEvidence) -> Assessment:
    """A plain file that parses, with its external data."""
    facts = evidence.description.file
    return Assessment(size_text(facts) if facts else "")


def size_text(facts: FileFacts) -> str:
    text = f"{facts.bytes / 2**20:.2f} MiB" if facts.bytes >= 2**17 else f"{facts.bytes / 2**10:.1f} KiB"
    if not facts.external:
        return text
    where = facts.external[0] if len(facts.external) == 1 else f"{len(facts.external)} files"
    return f"{text}, and its data beside it in {where}"


def checker(evidence: ValidationEvidence) -> Assessment:
    """ONNX's checker, strict shape inference, stated shapes."""
    description = evidence.description
    if description.file is None or any(finding.phase == "checker" for finding in description.findings):
        return Assessment()
    return Assessment("valid, and its shapes follow from its inputs")


def operators(evidence: ValidationEvidence) -> Assessment:
    """Opsets and operators."""
    description = evidence.description
    if description.file is None:
        return Assessment()
    opsets = ", ".join(
        f"{'' if domain in ('', 'ai.onnx') else domain + ' '}{version}"
        for domain, version in description.file.opsets.items()
    )
    commonest = sorted(description.operators.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{count} {name}" for name, count in commonest[:_SHOWN])
    more = " …" if len(commonest) > _SHOWN else ""
    return Assessment(f"opset {opsets}; {description.nodes} nodes of {len(commonest)} types, {shown}{more}")


def interface(evidence: ValidationEvidence) -> Assessment:
    """The inputs x and masks, and the output."""
    description, roles = evidence.description, evidence.description.roles
    if description.file is None or roles is None:
        return Assessment()
    masks = [
        f"mask {name!r} {description.port(name).shape_text or 'of any rank'} ({MEANINGS[mask.meaning or 'attend']})"
        for name, mask in description.mask_inputs.items()
    ]
    x, output = description.port(roles.x), description.port(roles.output)
    ports = [f"x {x.name!r} {x.dtype}", *(masks or ["no mask"]), f"output {output.name!r} {output.dtype}"]
    return Assessment(", ".join(ports))


def dimensions(evidence: ValidationEvidence) -> Assessment:
    """Batch and sequence, free or fixed, as the file declares them."""
    description = evidence.description
    if description.file is None or description.roles is None:
        return Assessment()
    sizes = dict(zip(("batch", "sequence"), description.declared_sizes(), strict=True))
    declared = [f"{name} fixed to {size}" for name, size in sizes.items() if size is not None]
    if free := [name for name, size in sizes.items() if size is None]:
        declared.append(f"{' and '.join(free)} declared free")
    x = description.port(description.roles.x)
    return Assessment(f"{', '.join(declared)}; x {x.shape_text or 'of any rank'}")
