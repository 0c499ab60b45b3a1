"""What a file is compared with: its layer, its parameters, and a worker that answers for it, where it can run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy.typing as npt

from encoder_conformance.asking import JudgedAnswer
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judging.loop import judge
from encoder_conformance.plan import plan
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import Finding, MaskMeaning
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
    findings: tuple[Finding, ...] = ()
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
    ) -> dict[tuple[str, str], JudgedAnswer]:
        """Its judged answers to the cases, whose parameters it is given: what is compared is the computation."""
        assert self.session is not None and self.implementation is not None
        dtype = self.dtype_for(asked)
        planned = plan(self.implementation, [_of_dtype(case, dtype) for case in cases], (dtype,))
        tasks = (task for task in planned if task.check in ("output", "stages") and task.opt_out is None)
        found: dict[tuple[str, str], JudgedAnswer] = {}
        for answer in judge(self.session, tasks, lambda case: expected[case.id], Observations()):
            found[answer.task.case.id, answer.task.check] = answer
            step(f"{self.name} {answer.task.case.id}")
        return found


def _of_dtype(case: Case, dtype: DtypeName) -> Case:
    return replace(case, situation=case.situation.model_copy(update={"dtypes": (dtype,)}))
