"""The goldens of a run: frozen ones, or where there are none, those that the oracle computes first."""

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute_all
from encoder_conformance.oracle.golden.store import (
    Manifest,
    check_digest,
    check_ids,
    checked_golden,
    expected_of,
    golden_path,
    is_at_hand,
    read_golden,
    read_golden_manifest,
    tensors_of,
)
from encoder_conformance.platform.recent import Recent
from encoder_conformance.protocol.spool import Extent, Spool
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.size import is_large


class Goldens:
    """Case → its expectation, read on demand. A bounded cache keeps memory independent of the number of cases; what
    leaves it lies in a spool, which takes a tenth of the time to read that a golden file does.

    A golden is frozen where the case is of a layer of the specification, drawn as it was. For others, and for those
    frozen ones that a wheel leaves out, `compute` comes first.
    """

    KEPT = 64
    """Goldens in memory, some 100 kB each. Implementations that run the same case at about the same time share one
    read; so do the case's checks and formats."""

    def __init__(self, cases: Sequence[Case], jobs: int = 1) -> None:
        """`jobs`: processes that compute."""
        self.cases, self._jobs = list(cases), jobs
        self._specification = load()
        computed = filter(None, map(self._computed_for, cases))
        self.computed = list({case.id: case for case in computed}.values())
        self._recent = Recent[Expected](self.KEPT)
        self._spool, self._slots = Spool(), dict[str, Extent]()

    def is_frozen(self, case: Case) -> bool:
        """Whether the golden of the case is frozen, in `specs/golden`."""
        return case.seed == 0 and self._specification.layers.get(case.layer.layer) == case.layer

    def _computed_for(self, case: Case) -> Case | None:
        """The case whose golden has to be computed for this one; None if a file has it, or none is needed."""
        if not self.is_frozen(case):
            return case
        return None if case.needs_no_golden or is_at_hand(case) else self._specification.cases[case.golden_id]

    def check(self) -> None:
        """Raise InputError if a golden that is frozen is missing, edited, or made from another layer or situation."""
        frozen = [case for case in self.cases if self.is_frozen(case)]
        if not frozen:
            return
        check_ids(self._specification.with_golden, self._manifest)
        for case in frozen:
            if case.needs_no_golden:
                continue
            if is_at_hand(case):
                checked_golden(case, self._manifest, constants())
            else:
                check_digest(case, self._manifest.cases[case.golden_id], constants())

    @property
    def waiting(self) -> bool:
        """Whether `compute` has something to do."""
        return bool(self.computed) and self.computed[0].id not in self._slots

    def compute(self, computed: Callable[[Case], None] = lambda case: None) -> None:
        """Compute those that are not frozen, once; `computed` is called after each."""
        if not self.waiting:
            return
        try:
            with contextlib.closing(compute_all(self.computed, constants(), self._jobs)) as results:
                for case, expected in results:
                    self._slots[case.id] = self._spool.put(expected)
                    computed(case)
        except BaseException as error:
            error.add_note(f"{len(self._slots)} of {len(self.computed)} goldens were computed, and they are not kept")
            raise

    def spool(self, case: Case) -> bool:
        """Leave the golden of a small case in the spool. Whether it had to be read for that."""
        case = self._frozen_as(case)
        if case.id in self._slots or is_large(case.layer):
            return False
        self._read(case)
        return True

    def __call__(self, case: Case) -> Expected:
        case = self._frozen_as(case)
        return self._recent.get(case.id, lambda: self._read(case))

    def _frozen_as(self, case: Case) -> Case:
        """The case under whose id its golden is kept: cases that compare the same positions have one (G-4)."""
        if self.is_frozen(case) and case.situation.input.padding == "as_drawn":
            return self._specification.cases[case.golden_id]
        return case

    @cached_property
    def _manifest(self) -> Manifest:
        return read_golden_manifest()

    def _read(self, case: Case) -> Expected:
        if case.id in self._slots:
            kept: Expected = self._spool.get(self._slots[case.id])
            return kept
        computed = self._computed_for(case)
        if computed is None or computed.id not in self._slots:
            expected = read_golden(case, self._manifest, constants())
        else:
            path = golden_path(computed.id)
            expected = expected_of(case, tensors_of(self._spool.get(self._slots[computed.id])), constants(), path)
        slot = self._spool.put(expected)
        if slot.room:  # a full disk costs time, and not memory
            self._slots[case.id] = slot
        return expected
