"""A file and its source as two black boxes: what was compared end to end, and what is apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from encoder_conformance.blackbox.comparing import LIMIT
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.protocol.findings import Finding


@dataclass(frozen=True)
class WholeVerdict:
    """One output of one run in one case. `rms`: of its error, in σ; None with a `problem`: there is no number."""

    run: RuntimeRun
    case: str
    output: str
    rms: float | None = None
    problem: str = ""

    @property
    def agrees(self) -> bool:
        return not self.problem and self.rms is not None and self.rms <= LIMIT


@dataclass(frozen=True)
class WholeComparison:
    """What was compared end to end. `not_compared`: why nothing, or what of it was not.

    `outputs`: the file's → the source's. `better`: cases in which the file has numbers where its source has none.
    `notes`: what was guessed of the inputs, and how the source was asked.
    """

    source: str
    cases: Sequence[WholeCase] = ()
    verdicts: Sequence[WholeVerdict] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    not_compared: Sequence[Finding] = ()
    better: Sequence[str] = ()
    notes: Sequence[Finding] = ()
    first_apart: Finding | None = None
    """The first step of the file that is none of the source's, and in which case; or why that is not known."""
    failures: Sequence[tuple[RuntimeRun, str]] = ()
    """The runs that answer nothing at all, and what they end with."""
    exchanged: Mapping[str, str] = field(default_factory=dict)
    """An output of the file → the source's that it is, where it is compared with another."""

    @property
    def mask_missing(self) -> Finding | None:
        """That the source hides positions, and the file takes no mask."""
        return next((each for each in self.notes if each.kind == "mask-missing"), None)

    @property
    def unrepeatable(self) -> Finding | None:
        """That its source answers the same inputs otherwise each time: nothing can be held against that."""
        return next((each for each in self.not_compared if each.kind == "source-not-repeatable"), None)

    @property
    def why_not(self) -> list[str]:
        """Why nothing, or what of it was not compared, in words."""
        return [each.message for each in self.not_compared]

    @property
    def apart(self) -> list[WholeVerdict]:
        """What is not the same."""
        return [each for each in self.verdicts if not each.agrees]

    @property
    def wrong_runs(self) -> tuple[str, ...]:
        """The runs that are wrong with a right file: another that follows it to the letter is nowhere apart."""
        return tuple(dict.fromkeys(each.run.name for each in self.apart)) if self.is_right else ()

    @property
    def is_right(self) -> bool:
        """Whether a run that follows the file to the letter is nowhere apart: what is wrong in the file is wrong in
        all, and no wrong file has a right output by chance."""
        literal = {each.run.name for each in self.verdicts if each.run.is_literal}
        return bool(literal - {each.run.name for each in self.apart})

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and all of it is the same."""
        return bool(self.verdicts) and not self.apart
