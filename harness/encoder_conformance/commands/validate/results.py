"""`validation.json`: all results of a validation, and its conclusion.

A file that is a consistent other layer passes its own tests. Only what a user states says what it should be.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import computed_field

from encoder_conformance.commands.validate.rounding.results import Rounding
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding, Plain
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.strict import Frozen

Kind = Literal["as_stated", "as_source", "same_outputs", "consistent", "runtime_wrong", "wrong", "not_judged"]
"""As stated: it is the stated layer. As source: it does what its source does, and both are off from the layer that was
read off them. Same outputs: they are those of its source, and no layer that is known was found in it. Consistent: it
conforms to the layer that its own graph shows, and nothing stated what it should be. Runtime wrong: the file is right,
and a runtime that was asked does something else."""
Stated = Literal["layer", "parameters", "source"]
"""What the user stated: the layer that it should be, the parameters that it was made from, or its source."""
CONCLUSIONS: dict[Kind, tuple[int, str]] = {
    "as_stated": (0, "The file is correct"),
    "as_source": (0, "The file does what its source does; both differ from the layer that was read off them"),
    "same_outputs": (0, "The file has the outputs of its source"),
    "consistent": (0, "Internally consistent"),
    "runtime_wrong": (1, "The file is correct; a runtime is not"),
    "wrong": (1, "The file is wrong"),
    "not_judged": (2, "The file could not be judged"),
}
"""Kind → the exit status, and how the last line begins."""
_INVALID: tuple[FindingKind, ...] = (
    "checker-refuses", "shapes-contradict", "constants-unreadable", "operator-unknown", "file-does-not-run"
)  # fmt: skip
"""Errors by which a file is wrong, whatever it is of, where they are certain."""
Question = Literal["other batch sizes", "other lengths", "padding", "other runtimes", "other levels"]


class Covered(Frozen):
    """Whether a file holds there. `said`: what was asked, what of it is wrong, or why nothing was asked. `asked`,
    `wrong`: the same for programs: sizes, situations, runtimes or levels."""

    question: Question
    answer: Literal["yes", "no", "not asked"]
    said: Plain
    asked: tuple[int | Plain, ...] = ()
    wrong: tuple[int | Plain, ...] = ()


class WholeResult(Frozen):
    """The file and its `source` as two black boxes. `cases`: that were asked; `outputs`: the file's → the source's.

    `rms`: the largest error of all outputs, in σ; None: there is no number. `not_compared`: what was not, and why.
    """

    source: Plain
    cases: tuple[str, ...]
    outputs: dict[str, Plain]
    agrees: bool
    rms: float | None
    not_compared: tuple[Plain, ...]


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
    `answers_compared`: how many answers the source gave, too, stage by stage.
    `rounding`: how far a file of integers is off. `excused`: the source is off from the oracle alike. `strict`: a
    warning fails it. `deviations`: what it does otherwise than the specification, as the user stated, or as was read
    off it where nothing was stated.
    `summaries` has a few words on each phase, `not_asked` why it asked nothing, and `covered` for what the file holds.
    """

    format: Literal["encoder-conformance validation"] = "encoder-conformance validation"
    version: Literal[3] = 3
    model: Plain
    judged: bool
    strict: bool
    deviations: tuple[str, ...] = ()
    compared_with: tuple[Stated, ...]
    against: Plain | None
    answers_compared: int = 0
    whole: WholeResult | None = None
    rounding: Rounding | None = None
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
    not_asked: dict[Phase, Plain]
    covered: tuple[Covered, ...]

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
        measured = any(error.phase == "reduction" for error in self.errors)  # what its integers do, in any layer
        if not self.judged and not measured and not any(map(_is_invalid, self.errors)):
            return "not_judged"
        own = [error for error in self.errors if not error.is_of(self.wrong_runtimes)]
        if own or (self.strict and self.warnings):
            return "wrong"
        if self.errors:
            return "runtime_wrong"
        if self.excused:
            return "as_source"
        if not self.runtimes:
            return "same_outputs"
        return "as_stated" if "layer" in self.compared_with else "consistent"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> int:
        return CONCLUSIONS[self.conclusion][0]


def _is_invalid(error: PhaseFinding) -> bool:
    """Whether it shows by itself that a file is wrong, though nothing of that could be judged."""
    return error.kind in _INVALID and error.about.get("certain") is True


def in_order(findings: Iterable[PhaseFinding]) -> tuple[PhaseFinding, ...]:
    """By phase, and the worst of each first; equal findings once."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(findings), key=lambda f: (PHASES.index(f.phase), rank[f.severity])))
