"""`diff.json`: how far two layers are apart, tensor by tensor, and each from the oracle."""

from typing import Literal

from encoder_conformance.blackbox.comparing import LIMIT
from encoder_conformance.commands.check.covered import Asked
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Plain, SourceLine
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Frozen


class TensorDifference(Frozen):
    """One tensor that both gave. `rms`, `max`: in √2 σ, of their difference; None where shapes differ.

    `sides`: rms of each from the oracle, in σ.
    """

    case: str
    check: Check
    tensor: str
    rms: float | None
    max: float | None
    sides: tuple[float | None, float | None]

    @property
    def agrees(self) -> bool:
        limits = constants()
        fits = self.rms is not None and self.max is not None
        return fits and (self.rms or 0) <= limits.rms_limit and (self.max or 0) <= limits.max_limit


class SideResult(Frozen):
    """`layer`: what it is, read off it; None for an implementation. `without`: arguments that may change its output
    and were not given."""

    name: str
    versions: dict[str, str]
    layer: Layer | None
    without: tuple[str, ...]
    records: tuple[Record, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def failed(self) -> list[Record]:
        return [record for record in self.records if record.outcome not in EXPECTED]


class DiffResult(Frozen):
    format: Literal["encoder-conformance diff"] = "encoder-conformance diff"
    version: Literal[1] = 1
    layer: Layer
    sides: tuple[SideResult, SideResult]
    apart: tuple[TensorDifference, ...]
    asked: tuple[Asked, ...] = ()
    """What both answered: the format and the sizes."""
    findings: tuple[Finding, ...] = ()
    """What differs in how they are called, and in what their parameters are; and what of each could not be given."""

    @property
    def misled(self) -> bool:
        """Whether a call or a checkpoint of one means another thing in the other, or raises."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def differing(self) -> list[TensorDifference]:
        return [each for each in self.apart if not each.agrees]

    @property
    def unanswered(self) -> list[Record]:
        """The checks that a side was asked and gave no tensors for."""
        return [record for side in self.sides for record in side.failed if not record.tensors]

    @property
    def status(self) -> int:
        """0 they agree; 1 they do not; 2 nothing could be compared."""
        if self.differing or (self.apart and (self.unanswered or self.misled)):
            return 1
        return 0 if self.apart else 2


class OutputDifference(Frozen):
    """One output of A beside B's in one case. `rms`: of their difference, in σ; None with a `problem`: no number.
    `problem_kind`: the same for programs."""

    case: str
    output: str
    rms: float | None
    problem: str = ""
    problem_kind: FindingKind | None = None

    @property
    def agrees(self) -> bool:
        return not self.problem and self.rms is not None and self.rms <= LIMIT


class UnreadSide(Frozen):
    """A side that no layer was read off. `features`: the names of what is otherwise, where they are known; `source`:
    the line that shows it."""

    side: Literal["A", "B"]
    features: tuple[str, ...] = ()
    source: SourceLine | None = None


class WholeDiffResult(Frozen):
    """Two modules as black boxes, each with its own parameters. `unread`: why no layer was judged. `outputs`: A's →
    B's. `masks`: the arguments of A that hid positions."""

    format: Literal["encoder-conformance diff of outputs"] = "encoder-conformance diff of outputs"
    version: Literal[1] = 1
    sides: tuple[Plain, Plain]
    unread: tuple[Plain, ...]
    unread_of: tuple[UnreadSide, ...] = ()
    outputs: dict[str, str]
    apart: tuple[OutputDifference, ...]
    cases: tuple[str, ...]
    masks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def differing(self) -> list[OutputDifference]:
        return [each for each in self.apart if not each.agrees]

    @property
    def status(self) -> int:
        """0 they agree; 1 they do not, or a call of one means another thing in the other; 2 nothing was compared."""
        misled = any(finding.severity == "error" for finding in self.findings)
        return 2 if not self.apart else int(bool(self.differing) or misled)
