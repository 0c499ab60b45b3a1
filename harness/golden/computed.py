"""The goldens of a run that has no frozen ones: the oracle computes all of them first, for another seed or layer."""

import contextlib
from collections.abc import Callable, Sequence

from encoder_conformance.golden.build import compute_all
from encoder_conformance.judge.expected import Expected
from encoder_conformance.recent import Recent
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spool import Slot, Spool

_CACHED = 64
"""Goldens in memory, as of the frozen ones."""


class ComputedGoldens:
    """Case → its expectation, once `compute` has ended. They lie on disk, and the most recent ones in memory."""

    def __init__(self, cases: Sequence[Case], constants: Constants, jobs: int) -> None:
        """`jobs`: processes that compute."""
        self._cases, self._constants, self._jobs = list(cases), constants, jobs
        self._spool, self._slots = Spool(), dict[str, Slot]()
        self._recent = Recent[Expected](_CACHED)

    def compute(self, computed: Callable[[Case], None]) -> None:
        """Compute all of them; `computed` is called after each."""
        try:
            with contextlib.closing(compute_all(self._cases, self._constants, self._jobs)) as results:
                for case, expected in results:
                    self._slots[case.id] = self._spool.put(expected)
                    computed(case)
        except BaseException as error:
            error.add_note(f"{len(self._slots)} of {len(self._cases)} goldens were computed, and they are not kept")
            raise

    @property
    def are_computed(self) -> bool:
        return len(self._slots) == len({case.id for case in self._cases})

    def __call__(self, case: Case) -> Expected:
        slot = self._slots[case.id]
        return self._recent.get(case.id, lambda: self._read(slot))

    def _read(self, slot: Slot) -> Expected:
        expected: Expected = self._spool.get(slot)
        return expected
