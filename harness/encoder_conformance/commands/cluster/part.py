"""A part of a plan, as it is sent to a worker of a cluster."""

from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.implementation.manifest import Device
from encoder_conformance.judging.records import Shard
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.plan import select

REQUEST = "part.json"


class RunQuestion(BaseModel):
    """The question of a whole run to each implementation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    globs: tuple[str, ...] = ()
    level: Level | None = None
    dtypes: tuple[DtypeName, ...] = ()
    seed: int = 0
    device: Device = "cpu"
    threads: int | None = None
    memory: int | None = None
    isolate: bool = False


class PlanPart(BaseModel):
    """A part of the plan of one implementation, and how many of its workers may run side by side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["encoder-conformance part"] = "encoder-conformance part"
    implementation: str
    shard: Shard
    jobs: int
    question: RunQuestion

    @property
    def name(self) -> str:
        return f"{self.implementation} {self.shard.number}/{self.shard.of}"


def cases_of(question: RunQuestion) -> list[Case]:
    """The cases that are asked, with the question's seed."""
    every = [replace(case, seed=question.seed) for case in load().cases.values()]
    return select({case.id: case for case in every}, question.globs, question.level)
