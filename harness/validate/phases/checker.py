"""Phase `checker`: ONNX's checker, strict shape inference, stated shapes. The worker finds."""

from encoder_conformance.validate.evidence import Assessment, Evidence


def assess(evidence: Evidence) -> Assessment:
    description = evidence.description
    if description.file is None or any(finding.phase == "checker" for finding in description.findings):
        return Assessment()
    return Assessment("valid, and its shapes follow from its inputs")
