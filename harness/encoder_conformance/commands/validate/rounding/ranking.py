"""What of a file of integers is better left in float: each place alone, then the best of them together, measured."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.commands.validate.rounding.results import LeftInFloat, RankedPlace, Ranking, far
from encoder_conformance.judging.relative import largest_error
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.messages import Call, LookAtRounding
from encoder_conformance.protocol.quantised import IntegerPlace, RoundedAway, RoundingLooked
from encoder_conformance.spec.axes import Array
from encoder_conformance.subjects.starting import described_as
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_MOST = 128
"""Places that are measured, those with weights first: each is a file of its own."""
_MOST_OF_LARGE = 40
_TOGETHER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""How many of the best places are left in float together, in turn."""
_WITHOUT_LIMIT = 8
"""How many together, where no limit says how good is good enough."""
Asked = Sequence[tuple[WholeCase, Outputs]]
"""Cases, and the right outputs of each by the file's names."""


@dataclass
class Variants:
    """The file `model` with some of its operators left in float, as the worker of `session` makes it.

    `source`: the file that it was made from, or the tensors of what else that was.
    """

    session: Session
    model: Path
    source: tuple[str | None, dict[str, Array]]
    large: bool = False
    _looked: RoundingLooked | None = field(default=None, init=False)

    def look(self, cases: Sequence[WholeCase]) -> RoundingLooked | Failure:
        """Its places, and what its scales lose in any of these cases."""
        away: dict[str, RoundedAway] = {}
        path, tensors = self.source
        for case in cases:
            asked = LookAtRounding(target=self._path, inputs=tuple(case.inputs), source=path)
            sent = {f"source/{name}": value for name, value in tensors.items()} if self._looked is None else {}
            answer = self.session.describe(asked, {**case.inputs, **sent})
            if isinstance(answer, Failure):
                return answer
            self._looked = described_as(RoundingLooked, answer[0], "its rounding", self.session)
            away |= {each.node: each for each in self._looked.away if each.node not in away}
        assert self._looked is not None
        return RoundingLooked(places=self._looked.places, away=tuple(away.values()))

    def error(self, places: Sequence[int], asked: Asked) -> float | None:
        """The largest relative error with these places in float; None where it has none."""
        errors: list[float | None] = []
        for case, due in asked:
            call = Call(target=self._path, inputs=tuple(case.inputs), in_float=tuple(places))
            answer = self.session.call(call, dict(case.inputs))
            found = None if isinstance(answer, Failure) else largest_error(answer[1], due)
            errors.append(None if found is None or math.isnan(found) else found)
        largest = far(errors)
        return largest if math.isfinite(largest) else None

    def write(self, places: Sequence[int], new: Path) -> Failure | None:
        call = Call(target=self._path, inputs=(), in_float=tuple(places), write=str(new.absolute()))
        answer = self.session.call(call, {})
        return answer if isinstance(answer, Failure) else None

    @property
    def _path(self) -> str:
        return str(self.model.absolute())


def ranked(
    variants: Variants, places: Sequence[IntegerPlace], asked: Asked, progress: Progress
) -> list[tuple[float | None, int]]:
    """The error with each place alone in float, and its number: the best first."""
    most = _MOST_OF_LARGE if variants.large else _MOST
    numbers = sorted(range(len(places)), key=lambda number: not places[number].weight)[:most]
    progress.begin("leaving one in float", len(numbers))
    found = []
    for number in numbers:
        found.append((variants.error([number], asked), number))
        progress.step(places[number].node)
    return sorted(found, key=lambda pair: far([pair[0]]))


def together(
    variants: Variants, best: Sequence[int], asked: Asked, limit: float | None, as_it_is: float | None
) -> Iterator[LeftInFloat]:
    """The best places together, until the file is within the limit."""
    if not best or (limit is not None and far([as_it_is]) <= limit):
        return
    most = len(best) if limit is not None else min(_WITHOUT_LIMIT, len(best))
    for count in dict.fromkeys((*(each for each in _TOGETHER if each < most), most)):
        error = variants.error(best[:count], asked)
        yield LeftInFloat(count=count, error=error)
        if limit is not None and far([error]) <= limit:
            return


def ranking(
    variants: Variants, places: Sequence[IntegerPlace], asked: Asked, limit: float | None, progress: Progress
) -> Ranking | None:
    """None for a file none of whose operators is known to compute with integers."""
    if not places:
        return None
    as_it_is = variants.error([], asked)
    order = ranked(variants, places, asked, progress)
    left = together(variants, [number for _, number in order], asked, limit, as_it_is)
    shown = ((error, places[number]) for error, number in order)
    return Ranking(
        cases=tuple(case.name for case, _ in asked),
        as_it_is=as_it_is,
        found=len(places),
        places=tuple(RankedPlace(node=place.node, error=error, weight=place.weight) for error, place in shown),
        left=tuple(left),
        order=tuple(number for _, number in order),
    )
