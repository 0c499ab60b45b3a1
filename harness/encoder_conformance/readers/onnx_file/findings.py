"""Collects findings while a file is inspected, each once."""

from dataclasses import dataclass, field

from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding, Severity
from encoder_conformance.readers.onnx_file.tracing.unsupported import Feature


@dataclass
class Findings:
    """`features`: those that some errors of phase `layer` are known by."""

    found: list[PhaseFinding] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)

    def error(self, phase: Phase, message: str, hint: str = "", deviation: str | None = None) -> None:
        """`deviation`: the one that it is, if it is one of the catalogue."""
        self.add(phase, "error", message, hint, deviation)

    def warning(self, phase: Phase, message: str, hint: str = "") -> None:
        self.add(phase, "warning", message, hint)

    def note(self, phase: Phase, message: str, hint: str = "") -> None:
        self.add(phase, "note", message, hint)

    def of_runtime(self, runtime: str, message: str, hint: str) -> None:
        """That a runtime does not run the file: where another does, that is no error of the file."""
        told = PhaseFinding(phase="loads", severity="error", message=message, hint=hint, runtimes=(runtime,))
        if told not in self.found:
            self.found.append(told)

    def add(self, phase: Phase, severity: Severity, message: str, hint: str = "", deviation: str | None = None) -> None:
        finding = PhaseFinding(phase=phase, severity=severity, message=message, hint=hint, deviation=deviation)
        if finding not in self.found:
            self.found.append(finding)

    def errors(self, *phases: Phase) -> list[PhaseFinding]:
        return [f for f in self.found if f.severity == "error" and (not phases or f.phase in phases)]

    def in_order(self) -> tuple[PhaseFinding, ...]:
        """The findings by phase, and within one as they were found."""
        return tuple(sorted(self.found, key=lambda finding: PHASES.index(finding.phase)))
