"""Phase `file`: a plain file that parses, with its external data. The worker finds; here is the size."""

from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.wire.description import FileFacts


def assess(evidence: Evidence) -> Assessment:
    facts = evidence.description.file
    return Assessment(size(facts) if facts else "")


def size(facts: FileFacts) -> str:
    text = f"{facts.bytes / 2**20:.2f} MiB" if facts.bytes >= 2**17 else f"{facts.bytes / 2**10:.1f} KiB"
    if not facts.external:
        return text
    where = facts.external[0] if len(facts.external) == 1 else f"{len(facts.external)} files"
    return f"{text}, and its data beside it in {where}"
