"""How a worker is started."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.impl.environment import worker_environment
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.worker.limits import Limits
from encoder_conformance.worker.process import WorkerProcess
from encoder_conformance.worker.sandbox import sandboxed


@dataclass(frozen=True)
class Launch:
    """All that a worker's start depends on. `memory`: the bytes that it may hold."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    memory: int

    @classmethod
    def of(
        cls, ready: Ready, threads: int, log: Path, limits: Limits, variables: Mapping[str, str] | None = None
    ) -> "Launch":
        """`threads`: of its framework. `variables`: environment variables beside those that every worker gets."""
        named = () if limits.isolate else ready.implementation.environment
        environment = worker_environment(threads, named, variables or {})
        command = ready.command
        if limits.isolate:
            command, environment = sandboxed(ready, environment)
        return cls(command, ready.folder, environment, log, limits.memory)

    def start(self) -> WorkerProcess:
        """Raises WorkerFailure if the command cannot be executed."""
        return WorkerProcess(self.command, self.folder, self.environment, self.log, self.memory)
