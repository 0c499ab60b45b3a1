"""The deviations that a run has excluded so far, and the clauses that its checks cite."""

from collections.abc import Iterable

from encoder_conformance.judging.core.sensitivity import read_sensitivity
from encoder_conformance.judging.records import Record, Shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import clauses
from encoder_conformance.spec.outcome import Outcome

_JUDGED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.STALE, Outcome.FAIL})


class Exclusion:
    """The exclusion state of one implementation.

    A deviation is *excluded* if, in each planned format in which any case detects it, a check that detects it passed.
    A check that deviates as declared excludes nothing: another deviation might be hidden by the declared one.
    """

    def __init__(self, implementation: str, dtypes: Iterable[str], *, shows_all_stages: bool) -> None:
        """`dtypes`: the planned formats."""
        self._table, self._implementation = read_sensitivity(), implementation
        self._shows_all_stages = shows_all_stages
        self._detectable = {dtype: self._table.in_format(dtype) for dtype in set(dtypes)}
        self._excluded = dict.fromkeys(self._detectable, 0)
        self._cited: set[str] = set()

    def add(self, case: Case, record: Record) -> None:
        """Add the record of a check of this case."""
        if record.outcome in _JUDGED:
            self._cited.update(case.clauses)
        if record.outcome == Outcome.PASS:
            self._excluded[record.dtype] |= self._table.excluded_by(
                case, record.dtype, record.check, shows_all_stages=self._shows_all_stages
            )

    @property
    def count(self) -> tuple[int, int]:
        """The number of deviations excluded, and of those detectable in the planned formats."""
        detectable, left = self._bits()
        return (detectable & ~left).bit_count(), detectable.bit_count()

    def shown(self) -> Shown:
        """The exclusions and cited clauses so far."""
        detectable, left = self._bits()
        return Shown(
            implementation=self._implementation,
            deviations=detectable.bit_count(),
            not_excluded=tuple(self._table.names(left)),
            by_format={
                dtype: ((bits & self._excluded[dtype]).bit_count(), bits.bit_count())
                for dtype, bits in sorted(self._detectable.items())
            },
            clauses=len(clauses()),
            not_cited=tuple(name for name in clauses() if name not in self._cited),
        )

    def _bits(self) -> tuple[int, int]:
        """The detectable deviations, and those of them that are not excluded, as bit sets."""
        detectable = left = 0
        for dtype, bits in self._detectable.items():
            detectable |= bits
            left |= bits & ~self._excluded[dtype]
        return detectable, left
