"""`report.json`: one record a (implementation, case, dtype, check), and where and with what it was run."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.reason import Kind
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.situation import Check


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Record(_Frozen):
    """One check of one case: `rms` and `max` in σ over its tensors, `stage` the first one out of line.

    Where it deviates as declared, `deviations` are those that it shows and `distance` is how far it is from the
    specification without them, in σ (rms).
    """

    implementation: str
    case: str
    level: Level
    dtype: str
    check: Check
    outcome: Outcome
    rms: float | None = None
    max: float | None = None
    stage: str | None = None
    message: str = ""
    kind: Kind | None = None
    """Of what kind the reason in `message` is, where a program asks."""
    seconds: float = 0.0
    tensors: tuple[TensorVerdict, ...] = ()
    deviations: tuple[str, ...] = ()
    distance: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other records of a run; its task has the same."""
        return self.implementation, self.case, self.dtype, self.check


class Judged(_Frozen):
    """An implementation that took part."""

    name: str
    title: str
    framework: str
    command: tuple[str, ...]
    versions: dict[str, str]
    settings: dict[str, Any]
    log: str


class Absent(_Frozen):
    """An implementation that was not asked, because it could not be started here."""

    name: str
    reason: str
    hint: str


class Environment(_Frozen):
    """`seed` is the draw of inputs and parameters (rule P-6); 0 was judged against the frozen goldens."""

    conform: str
    python: str
    platform: str
    processor: str
    cpus: int
    jobs: int
    threads_per_worker: int
    device: str
    seed: int
    specification: dict[str, int]


class Measurement(_Frozen):
    """A number that a diagnosis measured, which no catalogue has: of a deviation, its value and one uncertainty."""

    deviation: str
    value: float
    uncertainty: float


class StageEquation(_Frozen):
    """The equation that a stage was found to be computed by, in the layers that specify another. `rms` and
    `specified_rms` are the largest error in any of the `cases`, in σ: with the one that was found, and without."""

    stage: str
    specified: str
    found: str
    rms: float
    specified_rms: float
    cases: tuple[str, ...]


class Diagnosis(_Frozen):
    """What explains failures of one implementation in one dtype: deviations of the catalogue, alone or a pair. Or a
    cause that was seen, in one dtype or in several, which `dtype` lists.

    `rms` is that of the worst tensor against the patched specification, in σ, over `cases`; with `by_size`, which says
    that of some tensors only the scatter could be predicted (rule V-4), in that scatter for those. `amplitude` and
    `significance` are the matched filter's: how much of the deviation's own direction is in the observation (1 is all
    of it), and how many σ that is. `indistinguishable` fit as well. `first_stage` was seen out of line first,
    `predicted_stage` is where the deviation itself would show first.
    """

    implementation: str
    dtype: str
    confidence: Literal["explained", "closest", "unknown", "seen"]
    """`seen`: a cause that needs no catalogue. `sentences` say what was seen, in `cases`, and `advice` what to do."""
    cut_short: bool = False
    """Unknown because the time ended before the catalogue was tried."""
    deviations: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    measured: tuple[Measurement, ...] = ()
    """The numbers of those of `deviations` that are not the catalogue's."""
    rms: float | None = None
    by_size: bool = False
    amplitude: float | None = None
    significance: float | None = None
    came_true: tuple[str, ...] = ()
    """What deviations that are predicted in size only predict beside it, and was seen to be so."""
    indistinguishable: tuple[tuple[str, ...], ...] = ()
    runner_up: tuple[str, ...] = ()
    runner_up_rms: float | None = None
    first_stage: str | None
    predicted_stage: str | None = None
    advice: str = ""
    cases: tuple[str, ...]
    equations: tuple[StageEquation, ...] = ()
    """What was identified beside the catalogue: stage by stage, in the order of computation."""
    left_open: tuple[str, ...] = ()
    """Stages out of line of which no equation was found."""
    observed: tuple[str, ...] = ()
    """Sentences about the first of these."""


EndedBy = Literal["budget", "first failure", "interrupt"]


class Shown(_Frozen):
    """What a run showed of one implementation. `deviations` can be seen in the formats asked, and `not_excluded` are
    those of them that are left in any of these; `by_format` is how many are excluded, of how many, in each. `clauses`
    there are, and `not_cited` are those that no judged check cites."""

    implementation: str
    deviations: int
    not_excluded: tuple[str, ...]
    by_format: dict[str, tuple[int, int]]
    clauses: int
    not_cited: tuple[str, ...]

    @property
    def excluded(self) -> int:
        return self.deviations - len(self.not_excluded)

    @property
    def cited(self) -> int:
        return self.clauses - len(self.not_cited)


class Report(_Frozen):
    """`complete` is false until every planned check has its record: a run that was cut off can be seen to be, and
    `ended_by` says by what. `shown` is what it showed of each implementation until then."""

    format: Literal["encoder-conformance report"] = "encoder-conformance report"
    version: Literal[2] = 2
    complete: bool
    ended_by: EndedBy | None = None
    started: str
    finished: str | None
    arguments: tuple[str, ...]
    environment: Environment
    implementations: tuple[Judged, ...]
    absent: tuple[Absent, ...]
    records: tuple[Record, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    shown: tuple[Shown, ...] = ()
