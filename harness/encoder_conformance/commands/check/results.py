"""`check.json`: everything that a check of a module found, part by part."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from encoder_conformance.commands.check.covered import Asked
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import About, Finding, Plain
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.spec.strict import Frozen


class VariantResult(Frozen):
    """A variant of the module, as `--also` names it (`word`), and what it is (`said`).

    `format`: by whose rounding it is judged. `problem`: why it was not, and `problem_kind` that for a
    program. `first_stage`: the first that is wrong, of
    those that its submodules show.
    """

    word: str
    said: Plain
    format: DtypeName
    problem: Plain = ""
    problem_kind: FindingKind | None = None
    records: tuple[Record, ...] = ()
    asked: tuple[Asked, ...] = ()
    first_stage: str | None = None

    @property
    def tally(self) -> Tally:
        return Tally.of(record.outcome for record in self.records)

    @property
    def unanswered(self) -> tuple[Record, ...]:
        """The calls that gave no output: it raised, ended its process, or took too long."""
        return tuple(record for record in self.records if record.outcome.state == "no answer")

    @property
    def rms(self) -> float | None:
        """The largest error, in σ of the format."""
        return max((record.rms for record in self.records if record.rms is not None), default=None)

    @property
    def status(self) -> int:
        """0 it is what the layer is; 1 it is not; 2 it was not judged."""
        if self.problem or not self.tally.applicable:
            return 2
        return int(self.tally.unexpected > 0)


UnaskedKind = Literal[
    "argument", "mask-form", "packed-rows", "positions-beyond", "other-positions", "gradients", "stages",
    "padded-stages", "way-back", "dropout", "other-configuration", "initialisation",
]  # fmt: skip


class NotAsked(Frozen):
    """What no verdict on a part covers: `said` in a few words, and for programs by its `kind` and facts."""

    kind: UnaskedKind
    said: Plain
    about: About = Field(default_factory=dict)


class PartResult(Frozen):
    """One module, or one part of a model. `at`: "" for the whole. `layer`: as what it was judged; None: it was not.

    `as_told`: whether the user said what it should be. `without`: arguments that may change the output and were not
    given, of the module and of the one that states its layer.
    `asked`: in which formats and sizes; () where it was not.
    """

    at: str
    described: ModuleDescription
    layer: Layer | None
    as_told: bool
    without: tuple[str, ...]
    findings: tuple[Finding, ...]
    records: tuple[Record, ...]
    diagnoses: tuple[Diagnosis, ...]
    asked: tuple[Asked, ...]
    like: str | None = None
    """The part that it is alike in what was read; this one was proved, and not asked again."""
    way_back: tuple[WayBackAnswer, ...] = ()
    published: tuple[str, ...] = ()
    """The layers of published encoders that it was read and proved to be, whatever their sizes."""
    variants: tuple[VariantResult, ...] = ()
    """Those of `--also`."""
    not_asked: tuple[NotAsked, ...] = ()
    """Of one that was judged."""

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "warning"]

    @property
    def tally(self) -> Tally:
        return Tally.of(record.outcome for record in self.records)

    @property
    def status(self) -> int:
        """0 it and its variants do what the layer does; 1 one does not; 2 one was not judged."""
        return worst([self.alone, *(each.status for each in self.variants)])

    @property
    def unlike(self) -> list[Finding]:
        """The choices that are other than the user said: it is another layer, whether it was asked or not."""
        return [finding for finding in self.errors if finding.kind == "choice-differs"]

    @property
    def alone(self) -> int:
        """0 it does what the layer does; 1 it does not, or answers one question in two ways; 2 it was not judged."""
        if self.described.is_two_answers:
            return 1
        if self.layer is None or not (self.records or self.like):
            return 1 if self.unlike else 2
        conforms = all(record.outcome in EXPECTED for record in self.records) and not self.errors
        return 0 if conforms else 1


class RefusedPart(Frozen):
    """A part of a model that was found to be a layer, and cannot be called. `kind`, `about`: why, for a program."""

    at: str
    kind: FindingKind
    message: str
    hint: str
    about: About = Field(default_factory=dict)


class CheckResult(Frozen):
    """`whole`: why parts were judged in the place of the target, where nobody named one; `beside`: the paths of others
    that may be layers, and were not asked; `of_whole`: what was found of the target around them. `kept_since`: when it
    was judged, if that was an earlier command and nothing that it rests on has changed."""

    format: Literal["encoder-conformance check"] = "encoder-conformance check"
    version: Literal[1] = 1
    target: str
    versions: dict[str, str]
    parts: tuple[PartResult, ...]
    refused: tuple[RefusedPart, ...] = ()
    whole: Plain = ""
    beside: tuple[str, ...] = ()
    of_whole: tuple[Finding, ...] = ()
    kept_since: str | None = None

    @property
    def status(self) -> int:
        """1 where a part, or what is around the parts, is wrong, else 2 where a part was not judged."""
        around = (1 for each in self.of_whole if each.severity == "error")
        return worst([*(part.status for part in self.parts), *(2 for _ in self.refused), *around])


def worst(statuses: Sequence[int]) -> int:
    """1 where something is wrong, else 2 where something was not judged, or nothing was."""
    return 1 if 1 in statuses else max(statuses, default=2)
