"""One check of one case: what is planned, asked, judged and recorded."""

from dataclasses import dataclass

from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.reason import Reason
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, Format
from encoder_conformance.spec.situation import Check


@dataclass(frozen=True)
class Task:
    """One check of one case in one dtype, for one implementation; `opt_out` says why it is not asked."""

    implementation: Implementation
    case: Case
    dtype: DtypeName
    check: Check
    opt_out: Reason | None
    deviations: tuple[Deviation, ...] = ()
    """What the implementation declares of it."""
    rounded_as: DtypeName | None = None
    """The format that is computed in, where it is narrower than that of the tensors that come and go."""

    @property
    def format(self) -> Format:
        """What the answer comes in, and the roundoff that it is judged by."""
        own = FORMATS[self.dtype]
        return own if self.rounded_as is None else own.computed_in(FORMATS[self.rounded_as])

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other tasks of a run; its record has the same."""
        return self.implementation.name, self.case.id, self.dtype, self.check

    @property
    def build_key(self) -> tuple[object, ...]:
        """Tasks with the same key are answered by the same built layer."""
        exponents = tuple(sorted(self.case.situation.parameter_exponents.items()))
        return self.dtype, self.case.layer.layer, exponents, self.case.numbers_from

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that the implementation is to answer with, in the order of computation."""
        names = tuple(self.case.expected_shapes(self.check))
        if self.check != "stages":
            return names
        return tuple(filter(self.implementation.capabilities.shows, names))
