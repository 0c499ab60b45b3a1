"""The frozen goldens of a run: all are checked before the first request, and each is read when its case runs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from encoder_conformance.golden.store import Manifest, check_ids, checked_golden, read_golden, read_golden_manifest
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.observation import is_large
from encoder_conformance.recent import Recent
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.load import Specification
from encoder_conformance.spool import Slot, Spool

_CACHED = 64
"""Goldens in memory, some 100 kB each. Implementations that run the same case at about the same time share one read;
so do the case's checks and formats."""


class FrozenGoldens:
    """Case → its expectation, read on demand. A bounded cache keeps memory independent of the number of cases; what
    leaves it lies in a spool, which takes a tenth of the time to read that the file does."""

    def __init__(self, specification: Specification, constants: Constants) -> None:
        self._specification, self._constants = specification, constants
        self._recent = Recent[Expected](_CACHED)
        self._spool, self._slots = Spool(), dict[str, Slot]()

    def check(self, cases: Sequence[Case]) -> None:
        """Raise InputError if a golden of these cases is missing, edited, or made from another layer or situation."""
        check_ids(self._specification.with_golden, self._manifest)
        for case in cases:
            if not case.needs_no_golden:
                checked_golden(case, self._manifest, self._constants)

    def read_ahead(self, cases: Iterable[Case]) -> None:
        """Fill the cache with the goldens of the first cases."""
        for case in islice(cases, _CACHED):
            self(case)

    def spool_ahead(self, cases: Iterable[Case]) -> Iterator[None]:
        """Read the goldens of small cases behind those of `read_ahead`, one a step, and leave them in the spool."""
        for case in islice(cases, _CACHED, None):
            if case.golden_id in self._slots or is_large(case.layer):
                continue
            self._read(self._specification.cases[case.golden_id])
            yield

    @cached_property
    def _manifest(self) -> Manifest:
        return read_golden_manifest()

    def __call__(self, case: Case) -> Expected:
        if case.situation.input.padding == "as_drawn":  # the same positions are compared as in the equal case (G-4)
            case = self._specification.cases[case.golden_id]
        return self._recent.get(case.id, lambda: self._read(case))

    def _read(self, case: Case) -> Expected:
        """From the file, or as the spool has it from there: another implementation runs the same case later."""
        if case.id in self._slots:
            kept: Expected = self._spool.get(self._slots[case.id])
            return kept
        expected = read_golden(case, self._manifest, self._constants)
        slot = self._spool.put(expected)
        if slot.room:  # a full disk costs time, and not memory
            self._slots[case.id] = slot
        return expected
