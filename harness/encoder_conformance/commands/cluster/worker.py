"""The part of a cluster's worker: say which implementations it can run, and judge one part in a process of its own."""

import hashlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

import encoder_conformance
from encoder_conformance.commands.versions.environments import name_of, normal, requirements_of
from encoder_conformance.implementation.interpreter import Missing, packages_of, resolve
from encoder_conformance.implementation.lock import source_digest
from encoder_conformance.implementation.manifest import Device, find_implementation
from encoder_conformance.judging.records import Shard
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import PACKAGE, SPECS
from encoder_conformance.reports.run.folder import NAME
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.load import every_case
from encoder_conformance.spec.strict import Frozen
from encoder_conformance.subjects.plan import select

REQUEST = "part.json"


class RunQuestion(Frozen):
    """The question of a whole run to each implementation."""

    globs: tuple[str, ...] = ()
    level: Level | None = None
    dtypes: tuple[DtypeName, ...] = ()
    seed: int = 0
    device: Device = "cpu"
    threads: int | None = None
    memory: int | None = None
    isolate: bool = False


class PlanPart(Frozen):
    """A part of the plan of one implementation, and how many of its workers may run side by side."""

    kind: Literal["encoder-conformance part"] = "encoder-conformance part"
    implementation: str
    shard: Shard
    jobs: int
    question: RunQuestion

    @property
    def name(self) -> str:
        return f"{self.implementation} {self.shard.number}/{self.shard.of}"


def cases_of(question: RunQuestion) -> list[Case]:
    """The cases that are asked, with the question's seed; those of published layers too, of what is asked these."""
    every = [replace(case, seed=question.seed) for case in every_case().values()]
    return select({case.id: case for case in every}, question.globs, question.level)


_END_OF_LOG = 2000
SECONDS_WITHOUT_LIFE = 120
"""The process of a part writes something every second, once it has imported what it needs."""


class Offer(Frozen):
    """A worker's description of itself. `harness`: a digest of its sources and of the specification. `packages`:
    implementation → what it needs, as it is installed there. `absent`: implementation → why it cannot run there."""

    conform: str
    harness: str
    packages: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)


class Result(Frozen):
    """A part's report.json, or why there is none. `lost`: its process came to an end that is none of its own."""

    report: str = ""
    problem: str = ""
    lost: bool = False


def offer(implementations: Sequence[str], device: Device) -> Offer:
    """The implementations among these that this machine can run."""
    packages, absent = dict[str, tuple[str, ...]](), dict[str, str]()
    for text in implementations:
        try:
            folder, implementation = find_implementation(text)
            ready = resolve(implementation, folder, {})
            if isinstance(ready, Missing):
                absent[text] = ready.reason
            elif device not in implementation.capabilities.devices:
                absent[text] = f"runs on {', '.join(implementation.capabilities.devices)}, not on {device}"
            else:
                needed = {normal(name_of(line)) for line in requirements_of(implementation, folder)}
                interpreter = ready.interpreter if implementation.requires else None
                lines = (packages_of(interpreter) or "").splitlines() if interpreter else []
                found = (line for line in lines if normal(line.split(" ")[0]) in needed)
                packages[text] = (*sorted(found), f"adapter {source_digest(folder)[:8]}")
        except InputError as error:
            absent[text] = str(error)
    harness = hashlib.sha256((source_digest(PACKAGE) + source_digest(SPECS)).encode()).hexdigest()[:12]
    return Offer(conform=encoder_conformance.__version__, harness=harness, packages=packages, absent=absent)


def judge(part: PlanPart, is_wanted: Callable[[], bool]) -> Result:
    """Judge one part. Its process ends with this one, however that ends, and when it is no longer wanted."""
    with tempfile.TemporaryDirectory(prefix="conform-part-") as temporary:
        folder = Path(temporary)
        (folder / REQUEST).write_text(part.model_dump_json(), encoding="utf-8")
        log = folder / "part.log"
        command = [sys.executable, "-m", "encoder_conformance.commands.cluster.part_command", temporary]
        with (
            log.open("wb") as said,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said) as process,
        ):
            why_ended = _why_to_end(process, is_wanted)
            if why_ended:
                process.kill()
            status = process.wait()
        report = folder / NAME
        if status == 0 and report.is_file():
            return Result(report=report.read_text(encoding="utf-8"))
        if why_ended:
            return Result(problem=why_ended, lost=True)
        end = log.read_text(encoding="utf-8", errors="replace")[-_END_OF_LOG:].strip()
        if status < 0:
            return Result(problem=f"its process was ended by signal {-status}", lost=True)
        return Result(problem=end or f"its process ended with status {status}")


def _why_to_end(process: "subprocess.Popen[bytes]", is_wanted: Callable[[], bool]) -> str:
    """Wait for the end of a part's process; "" if it comes. Otherwise the reason for which it is to be ended."""
    assert process.stdout is not None
    heard = time.monotonic()
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None:
            if waiting.select(1):
                if not os.read(process.stdout.fileno(), 1 << 16):
                    return ""  # it ends
                heard = time.monotonic()
            if time.monotonic() - heard >= SECONDS_WITHOUT_LIFE:  # somebody has stopped it
                return f"its process showed no life for {SECONDS_WITHOUT_LIFE} s"
            if not is_wanted():
                return "nobody waits for it any more"
    return ""
