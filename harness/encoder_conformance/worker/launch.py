"""The start of a worker, and its log, which is never read whole."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready, passed_on
from encoder_conformance.platform.processors import blas_threads
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.sandbox import SCRATCH, sandboxed

_END = 1 << 16
"""Bytes, which hold a long traceback."""
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.,=-]+")


@dataclass(frozen=True)
class Launch:
    """All that a worker's start depends on. `memory`: the bytes that it and its descendants may hold, those of the
    folders `scratch` of its sandbox included."""

    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    memory: int
    scratch: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, ready: Ready, threads: int, log: Path, limits: WorkerLimits, variables: Mapping[str, str] | None = None
    ) -> "Launch":
        """`threads`: of its framework. `variables`: environment variables beside those that every worker gets."""
        named = () if limits.isolate else ready.implementation.environment
        own = {"PYTHONUNBUFFERED": "1", **blas_threads(threads), **(variables or {})}
        command, environment = ready.command, {**passed_on(os.environ, named), **own}
        if not limits.isolate:
            return cls(command, ready.folder, environment, log, limits.memory)
        inside = sandboxed(ready, environment, limits.memory)
        return cls(inside.command, ready.folder, inside.environment, log, limits.memory, SCRATCH)


def log_of(folder: Path, implementation: str, number: int = 1) -> Path:
    """The log of an implementation's worker, counted from 1, in a run's folder of logs."""
    name = _NOT_IN_FILE_NAMES.sub("-", implementation)
    return folder / f"{name}{'' if number == 1 else f'-{number}'}.log"


def end_of_log(log: Path, begin: int = 0) -> str:
    """The last 64 KiB of a log, from its byte `begin` on; "" if there is no log."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _END, begin))
        return file.read(_END).decode(errors="replace")
