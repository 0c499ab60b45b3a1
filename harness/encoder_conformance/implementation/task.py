"""A task, the unit of planning, running, judging and recording: one check of one case in one dtype."""

from dataclasses import dataclass

from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, Format
from encoder_conformance.spec.reason import Reason
from encoder_conformance.spec.situation import Check


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One check of one case in one dtype, for one implementation. `opt_out`: why it does not apply, or None.

    A task equals itself alone: by that, an answer is known whose request was sent ahead.
    """

    implementation: Implementation
    case: Case
    dtype: DtypeName
    check: Check
    opt_out: Reason | None
    deviations: tuple[Deviation, ...] = ()
    """The implementation's declared deviations that are active in this check."""
    rounded_as: DtypeName | None = None
    """The format of the computation, if it is narrower than that of the tensors."""
    without: frozenset[str] = frozenset()
    """Parameters whose gradients are not asked for: the subject lacks them, or holds two of them as one tensor."""

    @property
    def format(self) -> Format:
        """The dtype of the answer, with the roundoff that it is judged by."""
        tensors = FORMATS[self.dtype]
        return tensors if self.rounded_as is None else tensors.computed_in(FORMATS[self.rounded_as])

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the task in a run; its record has the same key."""
        return self.implementation.name, self.case.id, self.dtype, self.check

    @property
    def build_key(self) -> tuple[object, ...]:
        """Identifies the built layer: tasks with the same key share it."""
        exponents = tuple(sorted(self.case.situation.parameter_exponents.items()))
        return self.dtype, self.case.layer.layer, exponents, self.case.numbers_from

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that the answer must have, in the order of computation."""
        names = tuple(self.case.expected_shapes(self.check))
        if self.check == "stages":
            return tuple(filter(self.implementation.capabilities.shows, names))
        if self.check == "gradients" and self.without:
            return tuple(name for name in names if name not in self.without)
        return names
