"""`report.json`: one record per (implementation, case, dtype, check), and the environment of the run."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Frozen


class Record(Frozen):
    """One check of one case. `rms` and `max`: over its tensors, in σ. `stage`: the first non-conforming tensor.

    For a check that deviates as declared, `deviations` are the observed ones, and `distance` is the rms distance, in σ,
    from the specification without them.
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
    """The kind of the reason in `message`, for programs."""
    seconds: float = 0.0
    predicting: float = 0.0
    """Seconds that went into judging it by what its declared deviations predict."""
    tensors: tuple[TensorVerdict, ...] = ()
    deviations: tuple[str, ...] = ()
    distance: float | None = None
    digest: str | None = None
    """Of the answer: equal where two runs got the same bits. None for checks of several requests."""

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the record in a run; its task has the same key."""
        return self.implementation, self.case, self.dtype, self.check


class Judged(Frozen):
    """An implementation that took part."""

    name: str
    title: str
    framework: str
    command: tuple[str, ...]
    versions: dict[str, str]
    settings: dict[str, Any]
    log: str
    folder: str = ""
    """Where its adapter and manifest are."""
    shows_all_stages: bool = False
    lock: str | None = None
    """A digest of what its answers depend on (impl/lock.py); None if that cannot be known."""
    peak_memory: int | None = None
    """The largest resident bytes of one of its workers, of those that have ended."""
    isolated: bool = False
    """Whether its workers ran in a sandbox (`--isolate`); what follows from this report does, then."""

    @property
    def made_with(self) -> str:
        """The versions in one line."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items()) or "never started"


class Absent(Frozen):
    """An implementation that did not take part, because it could not be started here."""

    name: str
    reason: str
    hint: str


class RunEnvironment(Frozen):
    """The environment of a run. `seed`: of inputs and parameters (rule P-6); the frozen goldens are for seed 0."""

    conform: str
    python: str
    platform: str
    processor: str
    cpus: int
    jobs: int
    threads_per_worker: int
    memory_per_worker: int | None = None
    """The bytes that a worker and its descendants may hold."""
    device: str
    seed: int
    specification: dict[str, int]


class Measurement(Frozen):
    """A number that a diagnosis measured and no catalogue lists: a deviation, its value and standard uncertainty."""

    deviation: str
    value: float
    uncertainty: float


class StageEquation(Frozen):
    """The equation that a stage was found to be computed by, in the layers that specify another. `rms` and
    `specified_rms` are the largest error in any of the `cases`, in σ: with the one that was found, and without."""

    stage: str
    specified: str
    found: str
    rms: float
    specified_rms: float
    cases: tuple[str, ...]


class Fault(Frozen):
    """A fault of ours that ended a diagnosis: the exception in one line, and its trace for whoever mends it."""

    error: str
    trace: str


ClaimValue = str | int | float


class Claim(Frozen):
    """What was found out beside a cause: a `kind` of the table of claims, and its `values`.

    `sigma`: the largest rms, in σ, that it leaves of what was observed, or by which one case shows it; None where bits
    were compared. `cases`: the number of cases that it was held to, of those that could refute it.
    """

    kind: str
    values: dict[str, ClaimValue]
    sigma: float | None = None
    cases: int = 0


Confidence = Literal["explained", "closest", "unknown", "seen"]


class Diagnosis(Frozen):
    """An explanation of the failures of one implementation in one dtype: one deviation of the catalogue, or a pair.

    Or a cause that was observed directly, in the dtypes that `dtype` lists.

    `rms`: of the worst tensor against the patched specification over `cases`, in σ. `by_size`: for some tensors only
    the scatter could be predicted (rule V-4); their rms is in that scatter. `amplitude` and `significance` are those of
    the matched filter: the fraction of the deviation's own direction in the observation (1 is all of it), and its
    number of σ. `indistinguishable`: deviations that fit as well. `first_stage`: the first non-conforming stage.
    `predicted_stage`: the first stage that the deviation changes.
    """

    implementation: str
    dtype: str
    confidence: Confidence
    """`seen`: a cause observed without the catalogue; `sentences` describe it and `advice` says what to do."""
    cause: str = ""
    """The name of a cause that is `seen`, or is explained by none of the catalogue, for programs. Of one that is
    unknown: of what else the `sentences` tell."""
    of: Literal["forward", "backward"] = "forward"
    """`backward`: of gradients, in layers whose forward pass conforms."""
    cut_short: bool = False
    """Unknown because the time ended before the whole catalogue was tried."""
    fault: Fault | None = None
    """Unknown because of it."""
    deviations: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    measured: tuple[Measurement, ...] = ()
    """The measured numbers of those `deviations` that the catalogue does not list."""
    rms: float | None = None
    by_size: bool = False
    amplitude: float | None = None
    significance: float | None = None
    came_true: tuple[str, ...] = ()
    """Other predictions of deviations that are predicted in size only, which the observation confirmed."""
    indistinguishable: tuple[tuple[str, ...], ...] = ()
    runner_up: tuple[str, ...] = ()
    runner_up_rms: float | None = None
    first_stage: str | None
    right_before: tuple[str, ...] = ()
    """Stages before the first one out of line that are in line in every case, where no cause explains all."""
    predicted_stage: str | None = None
    advice: str = ""
    cases: tuple[str, ...]
    equations: tuple[StageEquation, ...] = ()
    """What was identified beside the catalogue: stage by stage, in the order of computation."""
    left_open: tuple[str, ...] = ()
    """Stages out of line of which no equation was found."""
    observed: tuple[Claim | str, ...] = ()
    """What was found out about the first of these; sentences in a report of an earlier release."""


EndedBy = Literal["budget", "first failure", "interrupt", "fault of the harness", "fault of the machine"]


class Shown(Frozen):
    """The evidence of a run about one implementation.

    `deviations`: the number that is detectable in the formats of the run. `not_excluded`: those that are not excluded
    in at least one of these formats. `by_format`: format → numbers of excluded and of detectable ones. `clauses`: the
    number of clauses. `not_cited`: the clauses that no judged check cites.
    """

    implementation: str
    deviations: int
    not_excluded: tuple[str, ...]
    by_format: dict[str, tuple[int, int]]
    clauses: int
    not_cited: tuple[str, ...]

    @property
    def excluded(self) -> int:
        """The number of deviations that are excluded in every format."""
        return self.deviations - len(self.not_excluded)

    @property
    def cited(self) -> int:
        """The number of clauses that a judged check cites."""
        return self.clauses - len(self.not_cited)


class Exactness(Frozen):
    """An implementation that is more exact in `dtype` than rounding allows: most of its outputs and gradients, `below`
    of `checks`, are as if rounded once from the expected values."""

    implementation: str
    dtype: str
    checks: int
    below: int


class Shard(Frozen):
    """Part `number` (from 1) of the `of` parts in which a plan is run."""

    number: int = Field(ge=1)
    of: int = Field(ge=1)

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.number > self.of:
            raise ValueError(f"there is no part {self.number} of {self.of}")
        return self


class MergedRun(Frozen):
    """A run that is a part of a merged report: where and when it was."""

    complete: bool
    started: str
    arguments: tuple[str, ...]
    environment: RunEnvironment
    shard: Shard | None = None


class Report(Frozen):
    """The report of a run. `complete`: every planned check has its record, and the run came to its end; otherwise
    `ended_by` is the reason.

    `shown`: the evidence so far about each implementation. `suspicious`: what is more exact than it can be.
    """

    format: Literal["encoder-conformance report"] = "encoder-conformance report"
    version: Literal[2, 3] = 3
    """2 had no digests, no folders of implementations, and no shards."""
    complete: bool
    ended_by: EndedBy | None = None
    started: str
    finished: str | None
    arguments: tuple[str, ...]
    environment: RunEnvironment
    implementations: tuple[Judged, ...]
    absent: tuple[Absent, ...]
    records: tuple[Record, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    shown: tuple[Shown, ...] = ()
    suspicious: tuple[Exactness, ...] = ()
    cases: dict[str, str] = Field(default_factory=dict)
    """Case → a digest of what was specified: its layer, its situation and the constants."""
    shard: Shard | None = None
    merged: tuple[MergedRun, ...] = ()
    """The runs that a merged report was made of."""

    def is_isolated(self, implementation: str) -> bool:
        """Whether its workers ran in a sandbox."""
        return any(each.isolated for each in self.implementations if each.name == implementation)

    def diagnoses_of(self, record: Record) -> list[Diagnosis]:
        """The diagnoses of its implementation in its dtype."""
        of_it = (each for each in self.diagnoses if each.implementation == record.implementation)
        return [each for each in of_it if record.dtype in each.dtype.split(", ")]
