"""Phase `operators`: opsets and operators. The worker finds; here are their counts."""

from encoder_conformance.validate.evidence import Assessment, Evidence

_SHOWN = 4


def assess(evidence: Evidence) -> Assessment:
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
