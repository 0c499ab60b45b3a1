"""Collects findings while a file is inspected, each once."""

from dataclasses import dataclass, field

from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding, Severity
from encoder_conformance.readers.onnx_file.tracing.features import Feature


@dataclass
class Findings:
    """`features`: those that some errors of phase `layer` are known by."""

    found: list[PhaseFinding] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)

    def error(self, phase: Phase, kind: FindingKind, message: str, hint: str = "", **about: object) -> None:
        """`about`: the facts of the message, by name."""
        self.add(phase, "error", kind, message, hint, **about)

    def warning(self, phase: Phase, kind: FindingKind, message: str, hint: str = "", **about: object) -> None:
        self.add(phase, "warning", kind, message, hint, **about)

    def note(self, phase: Phase, kind: FindingKind, message: str, hint: str = "", **about: object) -> None:
        self.add(phase, "note", kind, message, hint, **about)

    def of_runtime(self, runtime: str, message: str, hint: str, *, lacks: bool) -> None:
        """That a runtime does not run the file: where another does, that is no error of the file. `lacks`: for it has
        not all of its operators, in its formats."""
        kind: FindingKind = "runtime-lacks-operators" if lacks else "runtime-does-not-run"
        severity: Severity = "note" if lacks else "error"
        runtimes = (runtime,)
        self.take(
            PhaseFinding(phase="loads", severity=severity, kind=kind, message=message, hint=hint, runtimes=runtimes)
        )

    def add(
        self, phase: Phase, severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object
    ) -> None:
        """A finding whose severity depends on what else is known."""
        self.take(PhaseFinding(phase=phase, severity=severity, kind=kind, message=message, hint=hint, about=about))

    def take(self, finding: PhaseFinding) -> None:
        """Each once."""
        if finding not in self.found:
            self.found.append(finding)

    def has(self, kind: FindingKind) -> bool:
        return any(finding.kind == kind for finding in self.found)

    def errors(self, *phases: Phase) -> list[PhaseFinding]:
        return [f for f in self.found if f.severity == "error" and (not phases or f.phase in phases)]

    def in_order(self) -> tuple[PhaseFinding, ...]:
        """The findings by phase, and within one as they were found."""
        return tuple(sorted(self.found, key=lambda finding: PHASES.index(finding.phase)))
