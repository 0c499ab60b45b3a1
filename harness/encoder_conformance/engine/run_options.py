"""How a run is run: what its command says, and its workers, its diagnosis and its report need."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from encoder_conformance.worker.limits import WorkerLimits

if TYPE_CHECKING:  # options are declared, and their help is printed, without NumPy and pydantic
    from encoder_conformance.implementation.manifest import Device
    from encoder_conformance.judging.records import Shard

RANDOM = "random"
"""The word for a seed that is drawn."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; None leaves a number to the machine.

    `jobs`: the most workers in parallel, first of different implementations, then several of one. None: at most one per
    processor, and a second worker of an implementation only if it pays off. `threads`: of each worker's framework; by
    default the workers share all processors but one. `budget`: seconds, from `begun` by time.monotonic() on, after
    which all workers are killed. `fail_fast`: the first failing case is finished, and nothing runs after it. `shard`:
    the part of a plan that is run. `keep_failing`: keep the tensors of checks that fail. `quiet`: print what is wrong,
    the result, and nothing else; `verbose`: a line for each check.
    """

    jobs: int | None = None
    device: "Device" = "cpu"
    threads: int | None = None
    seed: int = 0
    begun: float = 0.0
    budget: float | None = None
    fail_fast: bool = False
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    shard: "Shard | None" = None
    keep_failing: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def until(self) -> float | None:
        """The time, by time.monotonic(), at which all workers are killed."""
        return None if self.budget is None else self.begun + self.budget
