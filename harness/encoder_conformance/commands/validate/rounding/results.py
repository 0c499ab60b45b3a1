"""`rounding` of `validation.json`: how far a file of integers is off, in which cases, and by what."""

import math
from collections.abc import Iterable, Mapping

from encoder_conformance.blackbox.asked_shapes import Kind
from encoder_conformance.protocol.findings import Plain
from encoder_conformance.protocol.quantised import RoundedAway, WeightInFloat
from encoder_conformance.spec.strict import Frozen

Errors = Mapping[str, float]
"""Run → relative error; NaN where it gives no number and its reference does."""


class RoundedCase(Frozen):
    """One case. `errors`: run → the relative error, None for no number. `weights`, `activations`: of the numbers that
    its integers stand for, against what it was made from, and of the file against those; None where that is one of the
    two already."""

    name: Plain
    kind: Kind
    errors: dict[str, float | None]
    weights: float | None = None
    activations: float | None = None


class RankedPlace(Frozen):
    """An operator of integers, and the largest relative error of the whole file where it alone is left in float, with
    this weight."""

    node: Plain
    error: float | None
    weight: WeightInFloat


class LeftInFloat(Frozen):
    """The first `count` places of the ranking together, and the largest relative error of the whole file."""

    count: int
    error: float | None


class Ranking(Frozen):
    """What is better left in float, measured in `cases`. `as_it_is`: the file's error there. `found`: all of its
    operators of integers; `places`: those that were measured, the best first, and `left` the best together."""

    cases: tuple[Plain, ...]
    as_it_is: float | None
    found: int
    places: tuple[RankedPlace, ...]
    left: tuple[LeftInFloat, ...]
    order: tuple[int, ...]
    """The numbers of all that were measured, as a worker lists them, the best first."""


class ChangedAnswer(Frozen):
    """What the file gives otherwise for what is the same: `by` which relation, how far by its size, and how far its
    rounding takes it."""

    by: str
    apart: float
    rounding: float


class Rounding(Frozen):
    """How far a file of integers is off from its `reference`. `made_from`: that is what it was made from; else the
    numbers that its integers stand for. `not_asked`: cases that could not be compared, and why; `not_ranked`: why no
    ranking was made."""

    reference: Plain
    made_from: bool
    cases: tuple[RoundedCase, ...]
    not_asked: tuple[Plain, ...] = ()
    away: tuple[RoundedAway, ...] = ()
    ranking: Ranking | None = None
    not_ranked: Plain = ""
    changed: tuple[ChangedAnswer, ...] = ()
    related: tuple[str, ...] = ()

    @property
    def judged(self) -> list[RoundedCase]:
        """The cases that a limit holds: the user's own, else those that are not out of range."""
        own = [each for each in self.cases if each.kind == "own"]
        return own or [each for each in self.cases if each.kind != "out of range"]

    def errors(self) -> dict[str, tuple[float, str]]:
        """Run → its largest relative error in the cases that are judged, and where; NaN is the largest."""
        found: dict[str, tuple[float, str]] = {}
        for case in self.judged:
            for run, error in case.errors.items():
                value = math.nan if error is None else error
                if not value <= found.get(run, (-1.0, ""))[0]:
                    found[run] = value, case.name
        return found

    def largest(self, kind: Kind) -> tuple[float, RoundedCase] | None:
        """The largest error of any run in the cases of a kind, and the case."""
        worst = [(far(each.errors.values()), each) for each in self.cases if each.kind == kind and each.errors]
        return max(worst, key=lambda pair: pair[0], default=None)


def far(errors: Iterable[float | None]) -> float:
    """The largest; infinity where one is no number."""
    return max((math.inf if error is None or math.isnan(error) else error for error in errors), default=0.0)


def shown(error: float | None) -> str:
    return "no number" if error is None or not math.isfinite(error) else f"{error:.2g}"
