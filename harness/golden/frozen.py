"""The frozen goldens of a run: each is checked before anything is asked, and read when its case is."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice

from encoder_conformance.golden.store import Manifest, check_ids, checked_golden, read_golden, read_golden_manifest
from encoder_conformance.judge.expected import Expected
from encoder_conformance.recent import Recent
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.load import Specification

_KEPT = 64
"""Implementations that are asked the same case at about the same time share one reading, and so do its checks and
formats. Some 100 kB each."""


class FrozenGoldens:
    """Case → what is expected of it. A few are kept: a run's memory does not grow with its cases."""

    def __init__(self, specification: Specification, constants: Constants) -> None:
        self._specification, self._constants = specification, constants
        self._read = Recent[Expected](_KEPT)

    def check(self, cases: Sequence[Case]) -> None:
        """Raise InputError if a golden of these cases is missing, edited, or of another layer or situation."""
        check_ids(self._specification.with_golden, self._manifest)
        for case in cases:
            if not case.needs_no_golden:
                checked_golden(case, self._manifest, self._constants)

    def read_ahead(self, cases: Iterable[Case]) -> None:
        """Read those that are asked first, as many as are kept, while nothing else is to be done."""
        for case in islice(cases, _KEPT):
            self(case)

    @cached_property
    def _manifest(self) -> Manifest:
        return read_golden_manifest()

    def __call__(self, case: Case) -> Expected:
        if case.situation.input.padding == "as_drawn":  # then the same is compared as in the case that it equals (G-4)
            case = self._specification.cases[case.golden_id]
        return self._read.get(case.id, lambda: read_golden(case, self._manifest, self._constants))
