"""What a file is compared with: its layer, its parameters, and a worker that answers for it, where it can run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy.typing as npt

from encoder_conformance.asking import Asked, ask
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.judge.expected import Expected
from encoder_conformance.plan import plan
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.wire.description import MaskMeaning
from encoder_conformance.wire.findings import PhaseFinding
from encoder_conformance.worker.session import Session

Array = npt.NDArray[Any]
SourceKind = Literal["module", "checkpoint", "file"]


@dataclass(frozen=True)
class Source:
    """`layer` None: a checkpoint has none. `own`: parameter → the source's own name of it. `masks`: what hides
    positions in it, and by which meaning; None where that is not known. `session` None: it does not run."""

    name: str
    kind: SourceKind
    layer: Layer | None
    parameters: Mapping[str, Array]
    own: Mapping[str, str]
    masks: Mapping[str, MaskMeaning] | None = None
    operators: Mapping[str, int] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[PhaseFinding, ...] = ()
    session: Session | None = None
    implementation: Implementation | None = None

    def dtype_for(self, asked: DtypeName) -> DtypeName:
        """The format to ask it in: that of the file, if it computes in it; else the next wider one."""
        assert self.implementation is not None
        have = self.implementation.capabilities.dtypes
        if asked in have:
            return asked
        return min(have, key=lambda name: (FORMATS[name].roundoff > FORMATS[asked].roundoff, -FORMATS[name].roundoff))

    def answers(
        self, cases: Sequence[Case], expected: Mapping[str, Expected], asked: DtypeName, step: Callable[[str], None]
    ) -> dict[tuple[str, str], Asked]:
        """Its judged answers to the cases, whose parameters it is given: what is compared is the computation."""
        assert self.session is not None and self.implementation is not None
        dtype = self.dtype_for(asked)
        plain = [_of_dtype(case, dtype) for case in cases]
        found: dict[tuple[str, str], Asked] = {}
        for task in plan(self.implementation, plain, (dtype,)):
            if task.check not in ("output", "stages") or task.opt_out is not None:
                continue
            answer = ask(self.session, task, in_format(task.case, expected[task.case.id], task.format), constants())
            found[task.case.id, task.check] = answer
            step(f"{self.name} {task.case.id}")
        return found


def _of_dtype(case: Case, dtype: DtypeName) -> Case:
    return replace(case, situation=case.situation.model_copy(update={"dtypes": (dtype,)}))
