"""`validation.json`: everything that was found of a file."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.results import Diagnosis, Record
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import STAGES, Description, Finding, Stage


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowResult(_Frozen):
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

    `summaries` say in a few words what each stage came to.
    """

    format: Literal["encoder-conformance validation"] = "encoder-conformance validation"
    version: Literal[1] = 1
    model: str
    judged: bool
    layer: Layer | None
    layer_from: Literal["told", "inferred"] | None
    dtype: str | None
    rounded_as: str | None
    description: Description
    rows: tuple[RowResult, ...]
    findings: tuple[Finding, ...]
    diagnoses: tuple[Diagnosis, ...]
    summaries: dict[Stage, str]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    def of_stage(self, stage: Stage) -> list[Finding]:
        return [finding for finding in self.findings if finding.stage == stage]

    @property
    def status(self) -> int:
        """0: it does what it should; 1: it was judged and does not; 2: it could not be judged."""
        if not self.judged:
            return 2
        return 1 if self.errors else 0


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """By stage, and the worst of each first; what is said twice is said once."""
    rank = {"error": 0, "warning": 1, "note": 2}
    once = dict.fromkeys(findings)
    return tuple(sorted(once, key=lambda finding: (STAGES.index(finding.stage), rank[finding.severity])))
