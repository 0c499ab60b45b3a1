"""`validation.json`: all results of a validation."""

from collections.abc import Iterable
from typing import Literal

from pydantic import computed_field

from encoder_conformance.commands.validate.conclusion import CONCLUSIONS, Kind, Stated
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding, Plain
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.strict import Frozen


class RuntimeResult(Frozen):
    """A runtime at a level. `absent` says why it was not asked; `seconds` is the median of its answers.

    `relative_error` is the largest of a file with integers as it is: σ does not judge its numbers.
    """

    runtime: str
    level: str
    absent: str | None
    versions: dict[str, str]
    passed: int
    applicable: int
    rms: float | None
    max: float | None
    seconds: float | None
    relative_error: float | None = None
    records: tuple[Record, ...]


class Validation(Frozen):
    """`layer` is what the file was judged as, `layer_from` how that was known; `judged` is false where it could not be.
    `wrong_runtimes`: the runs that are wrong though the file is right.

    `compared_with` is what the user stated of it, `against` the source, and `source_names` its names of parameters.
    `excused`: the source is off from the oracle alike. `strict`: a warning fails it. `deviations`: what
    it does otherwise than the specification, as the user stated, or as was read off it where nothing was stated.
    `summaries` has a few words on each phase.
    """

    format: Literal["encoder-conformance validation"] = "encoder-conformance validation"
    version: Literal[3] = 3
    model: Plain
    judged: bool
    strict: bool
    deviations: tuple[str, ...] = ()
    compared_with: tuple[Stated, ...]
    against: Plain | None
    layer: Layer | None
    layer_from: Literal["told", "inferred"] | None
    dtype: str | None
    rounded_as: str | None
    description: FileDescription
    runtimes: tuple[RuntimeResult, ...]
    wrong_runtimes: tuple[str, ...]
    source_names: dict[str, Plain]
    excused: bool
    findings: tuple[PhaseFinding, ...]
    diagnoses: tuple[Diagnosis, ...]
    summaries: dict[Phase, str]

    @property
    def errors(self) -> list[PhaseFinding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[PhaseFinding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    def of_phase(self, phase: Phase) -> list[PhaseFinding]:
        return [finding for finding in self.findings if finding.phase == phase]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def conclusion(self) -> Kind:
        if not self.judged:
            return "not_judged"
        own = [error for error in self.errors if not error.is_of(self.wrong_runtimes)]
        if own or (self.strict and self.warnings):
            return "wrong"
        if self.errors:
            return "runtime_wrong"
        if self.excused:
            return "as_source"
        return "as_stated" if "layer" in self.compared_with else "consistent"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> int:
        return CONCLUSIONS[self.conclusion][0]


def in_order(findings: Iterable[PhaseFinding]) -> tuple[PhaseFinding, ...]:
    """By phase, and the worst of each first; equal findings once."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (PHASES.index(f.phase), rank[f.severity])))
