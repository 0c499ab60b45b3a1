"""The subject: whatever can be judged, once it is opened."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.paths import working_directory
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.subjects.cases import InputLimits
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.session import Session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SubjectRequest:
    """A subject as the user names it.

    `target`: the name or folder of an implementation, package.module:name, file.py:name, hf:TYPE, or the path of a
    file. A module may be made with `arguments`, and its part `at` taken; relative paths are of `folder`. `layer`: what
    it should be, of which `resize` takes the choices alone. `dtypes`: the formats to look at a module in; none: float64
    and float32. `pythons`: implementation → the interpreter to start it with. `given`: argument of a module's call →
    what it is given; `inputs`: a file of such arguments. `limits`: of its worker; `seconds`: to look into it, and for
    each answer; None: the manifest's. `narrow`: hf:TYPE, whose defaults are wider than a check can carry, is made
    narrower; `supposing`: a class gets what the names of its required arguments say. Both are said of it.
    """

    target: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=working_directory)
    at: str | None = None
    layer: Layer | None = None
    resize: bool = False
    dtypes: tuple[DtypeName, ...] = ()
    pythons: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    inputs: str | None = None
    limits: WorkerLimits | None = None
    seconds: float | None = None
    narrow: bool = False
    supposing: bool = False


@dataclass(frozen=True)
class Subject:
    """Whatever can be judged, opened.

    `session`, `implementation`: the worker that answers for it, and what it is as an implementation, by its own name;
    None: a checkpoint computes nothing. `description`: what a reader found in it; None: an implementation and a
    checkpoint are not read. `layer`: as what it is judged; None: an implementation is any layer. `parameters`: its own,
    by the specification's names; `own_names`: those that it has for them itself. `at`: the part of a module that it is.
    `said`: what was found while it was opened; `not_asked`: why it is not asked, though it computes.
    """

    name: str
    session: Session | None = None
    implementation: Implementation | None = None
    description: ModuleDescription | FileDescription | None = None
    layer: Layer | None = None
    parameters: Mapping[str, Array] = field(default_factory=dict)
    own_names: Mapping[str, str] = field(default_factory=dict)
    at: str | None = None
    said: tuple[Finding, ...] = ()
    not_asked: str = ""

    @property
    def worker(self) -> Session:
        """The session of a subject that computes."""
        assert self.session is not None, f"{self.name} computes nothing"
        return self.session

    @property
    def as_module(self) -> ModuleDescription:
        """The description of a subject that is a module."""
        assert isinstance(self.description, ModuleDescription), f"{self.name} is no module"
        return self.description

    @property
    def limits(self) -> InputLimits | None:
        """The masks and sizes that it can be given; None: all."""
        match self.description:
            case ModuleDescription() as module:
                return InputLimits.of_module(module)
            case FileDescription() as file:
                return InputLimits.of_file(file)
        return None

    @property
    def absent(self) -> tuple[str, ...]:
        """The layer's parameters that it lacks."""
        return self.description.absent if isinstance(self.description, ModuleDescription) else ()

    def named(self, name: str) -> "Subject":
        """The subject by another name, which its records bear."""
        return replace(self, name=name, implementation=self.implementation and found_to_be(self.implementation, name))

    def tasks(self, cases: Iterable[Case], dtypes: tuple[DtypeName, ...] = ()) -> list[Task]:
        """The checks of these cases that it can be asked, in these dtypes or in all that the cases name."""
        assert self.implementation is not None, f"{self.name} computes nothing"
        planned = [task for task in plan(self.implementation, list(cases), dtypes) if task.opt_out is None]
        if not isinstance(self.description, ModuleDescription):
            return planned
        without, moved = self.description.ungiven, self.description.padding_moves_rows
        shown = (task for task in planned if not (moved and task.check == "stages" and _has_padding(task.case)))
        return [replace(task, without=without) for task in shown]

    def close(self) -> None:
        """End its worker. Versions and settings stay."""
        if self.session is not None:
            self.session.close()


def _has_padding(case: Case) -> bool:
    return case.situation.mask.padding is not None


def found_to_be(implementation: Implementation, name: str, **capabilities: object) -> Implementation:
    """The implementation by this name, with these capabilities in place of those of its manifest."""
    can = implementation.capabilities.model_copy(update=capabilities)
    return implementation.model_copy(update={"name": name, "capabilities": can})


def kinds_of(stages: Iterable[str]) -> tuple[str, ...]:
    """The kinds of stages that a subject shows: these, and always the output."""
    return tuple(sorted({*map(kind_of, stages), "output"}))


def layer_as_judged(layer: Layer, at: str, *, stated: bool) -> Layer:
    """The layer with its decimal epsilon, under a name of its own for each part of a model.

    One that was read has a name that says so.
    """
    part = re.sub(r"[^a-z0-9]+", "-", at.lower()).strip("-")
    name = "-".join(filter(None, (layer.layer if stated else "as-read", part)))
    family = layer.family if layer.is_stack else "small"  # whose situations are most, whatever the layer's own is
    return layer.with_decimal_epsilon.model_copy(update={"layer": name, "family": family})
