"""`validation.json`: all results of a validation."""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.results import Diagnosis, Record
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import PHASES, Description, Finding, Phase


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuntimeResult(_Frozen):
    """A runtime at a level. `absent` says why it was not asked; `seconds` is the median of its answers."""

    runtime: str
    level: str
    absent: str | None
    versions: dict[str, str]
    passed: int
    applicable: int
    rms: float | None
    max: float | None
    seconds: float | None
    records: tuple[Record, ...]


class Validation(_Frozen):
    """`layer` is what the file was judged as, `layer_from` how that was known; `judged` is false where it could not be.

    `summaries` has a few words on each phase.
    """

    format: Literal["encoder-conformance validation"] = "encoder-conformance validation"
    version: Literal[2] = 2
    model: str
    judged: bool
    layer: Layer | None
    layer_from: Literal["told", "inferred"] | None
    dtype: str | None
    rounded_as: str | None
    description: Description
    runtimes: tuple[RuntimeResult, ...]
    findings: tuple[Finding, ...]
    diagnoses: tuple[Diagnosis, ...]
    summaries: dict[Phase, str]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    def of_phase(self, phase: Phase) -> list[Finding]:
        return [finding for finding in self.findings if finding.phase == phase]

    @property
    def status(self) -> int:
        """0: it does what it should; 1: it was judged and does not; 2: it could not be judged."""
        if not self.judged:
            return 2
        return 1 if self.errors else 0


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By phase, and the worst of each first; equal findings once."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (PHASES.index(f.phase), rank[f.severity])))
