"""What is found about a file: collected, not first-only, each with the stage that found it and what to do."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
STAGES = ("file", "checker", "operators", "interface", "dimensions", "loads", "layer", "shapes", "masks", "numbers")


@dataclass(frozen=True)
class Finding:
    stage: str
    severity: Severity
    message: str
    hint: str = ""


@dataclass
class Findings:
    """A list that says itself what it has seen, once each."""

    found: list[Finding] = field(default_factory=list)

    def error(self, stage: str, message: str, hint: str = "") -> None:
        self._add(Finding(stage, "error", message, hint))

    def warning(self, stage: str, message: str, hint: str = "") -> None:
        self._add(Finding(stage, "warning", message, hint))

    def note(self, stage: str, message: str, hint: str = "") -> None:
        self._add(Finding(stage, "note", message, hint))

    def _add(self, finding: Finding) -> None:
        if finding not in self.found:
            self.found.append(finding)

    def errors(self, *stages: str) -> bool:
        return any(f.severity == "error" and (not stages or f.stage in stages) for f in self.found)

    def as_json(self) -> list[dict[str, Any]]:
        """In the order of the stages, and within one as they were found."""
        return [asdict(finding) for finding in sorted(self.found, key=lambda f: STAGES.index(f.stage))]
