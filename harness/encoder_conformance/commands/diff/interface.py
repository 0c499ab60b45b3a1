"""The findings on how two subjects are called: what each shows by itself, and what differs."""

from collections.abc import Iterator

from encoder_conformance.commands.check.arguments import argument_findings
from encoder_conformance.commands.check.findings import answering_findings
from encoder_conformance.protocol.description import Description
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.subjects.interfaces import compared


def interface_findings(first: Description | None, second: Description | None, dtype: str) -> Iterator[Finding]:
    """An implementation has no description: it is given what its manifest says. `dtype`: the format of both."""
    for side, described in (("A", first), ("B", second)):
        if isinstance(described, ModuleDescription):
            made = [note for note in described.notes if note.kind == "arguments-supposed"]
            for finding in (*made, *answering_findings(described, (dtype,)), *argument_findings(described)):
                about = {**finding.about, "side": side}
                yield finding.model_copy(update={"message": f"{side}: {finding.message}", "about": about})
    if first is not None and second is not None:
        yield from compared(first, second, ("A", "B"))
