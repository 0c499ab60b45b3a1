"""Checks a module: examines it in a worker, asks and judges its cases there, part by part."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.golden.at_once import compute_at_once
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.judge.expected import Expected
from encoder_conformance.module_check.findings import findings_of
from encoder_conformance.module_check.judging import as_described, judge_cases
from encoder_conformance.module_check.results import CheckResult, PartResult
from encoder_conformance.module_check.stated import with_layer_read
from encoder_conformance.module_check.subject import CheckRequest, Examined, Subject
from encoder_conformance.progress import Progress
from encoder_conformance.results import Diagnosis, Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.subjects.cases import module_cases, own_cases
from encoder_conformance.wire.description import ModuleDescription
from encoder_conformance.wire.findings import Problem

_NAME = "the module"


@dataclass(frozen=True)
class Part:
    """A part that was examined. `layer`: as what it is judged, under a name of its own; None: it cannot be judged.

    `like`: the part that it is alike in all that was read, so that it need not be asked.
    """

    at: str | None
    described: ModuleDescription
    own: Mapping[str, np.ndarray[Any, Any]]
    layer: Layer | None
    like: str | None = None

    @property
    def name(self) -> str:
        return self.at or _NAME


class Checking:
    """One check, and the worker that has the module."""

    def __init__(self, request: CheckRequest, log: Path, progress: Progress) -> None:
        """Raises InputError if no interpreter can run the worker, or what the module should be cannot be read."""
        self._progress = progress
        self.request = with_layer_read(request, log)
        self.subject = Subject(self.request, log)

    def result(self) -> CheckResult:
        """Raises InputError for a target that is no module, or holds no layer."""
        with contextlib.closing(self.subject):
            parts = [self.judged(part) for part in self.parts()]
        versions = dict(parts[0].described.versions)
        return CheckResult(target=self.request.target, versions=versions, parts=tuple(parts))

    def parts(self) -> Iterator[Part]:
        """The module that was named, as a layer or a stack; if it is neither, every layer that is found in it.

        A part has to be asked before the next is taken: the worker then answers as that.
        """
        self._progress.begin("examining the module", 1)
        found = self.subject.examined(self.request.at)
        usable = isinstance(found, Examined) and found.described.judged_as is not None
        paths = [] if usable or self.request.at is not None else self.subject.listed()
        if not paths and isinstance(found, Problem):
            raise self.subject.unusable(found)
        if not paths:
            assert isinstance(found, Examined)
            yield self._part(self.request.at, found)
            return
        first: dict[str, str] = {}
        for path in paths:
            found = self.subject.examined(path)
            if isinstance(found, Problem):
                raise self.subject.unusable(found)
            described = found.described
            key = described.model_copy(update={"adapter": ""}).model_dump_json()  # which names the part
            proved = described.proof is not None and described.proof.holds
            yield self._part(path, found, first.get(key) if proved else None)
            first.setdefault(key, path)

    def _part(self, at: str | None, found: Examined, like: str | None = None) -> Part:
        described, layer = found.described, found.described.judged_as
        computed = described.unplaced and described.searched is None
        if layer is None or not described.parameters or computed:
            return Part(at, described, found.own, None)
        if not_taken := [dtype for dtype in self.request.dtypes if dtype not in described.dtypes]:
            raise self.subject.unusable(_not_in(not_taken, described))
        told = named(layer, at or "", told=described.stated is not None)
        return Part(at, described, found.own, told, like)

    def cases(self, part: Part) -> list[Case]:
        if part.layer is None or part.like:
            return []
        portable = module_cases(part.described, part.layer, self.request.level)
        return [*portable, *own_cases(part.described, part.layer, part.own, self.request.level)]

    def implementation(self, part: Part) -> Implementation:
        described = as_described(self.subject.ready.implementation, part.described, part.name)
        return described.model_copy(update={"deviations": self.request.declared})

    def judged(self, part: Part) -> PartResult:
        """Ask the part that was taken last, and judge its answers."""
        cases = self.cases(part)
        records: tuple[Record, ...] = ()
        diagnoses: tuple[Diagnosis, ...] = ()
        if cases:
            expected = self._expected(cases)
            self._progress.begin("asking", len(cases))
            implementation = self.implementation(part)
            judged = judge_cases(
                self.subject.session,
                implementation,
                part.described,
                cases,
                expected,
                lambda record: self._progress.step(record.case),
            )
            records, diagnoses = tuple(judged.records), tuple(judged.observations.diagnoses(implementation.name))
        return PartResult(
            at=part.at or "",
            described=part.described,
            layer=part.layer if records or part.like else None,
            as_told=part.described.stated is not None,
            findings=findings_of(part.described, declared=bool(self.request.declared)),
            records=records,
            diagnoses=diagnoses,
            like=part.like,
        )

    def _expected(self, cases: list[Case]) -> dict[str, Expected]:
        self._progress.begin("computing what it should give", len(cases))
        expected = {}
        with contextlib.closing(compute_at_once(cases, self.request.jobs)) as computed:
            for case, result in computed:
                expected[case.id] = result
                self._progress.step(f"computed {case.id}")
        return expected


def _not_in(dtypes: list[DtypeName], described: ModuleDescription) -> Problem:
    names = " or ".join(dtypes)
    problem = f"it gives no output in {names} for parameters and x in {names}"
    if described.narrow_inside and "float64" in dtypes:
        problem = "something in it is cast to float32, so float64 says nothing"
    taken = ", ".join(described.dtypes)
    return Problem(message=problem, hint=f"it takes {taken}" if taken else "leave out --dtype")


def named(layer: Layer, at: str, *, told: bool) -> Layer:
    """The layer with its decimal epsilon, under a name of its own for each part of a model.

    One that was read has a name that says so.
    """
    part = re.sub(r"[^a-z0-9]+", "-", at.lower()).strip("-")
    name = "-".join(filter(None, (layer.layer if told else "as-read", part)))
    family = layer.family if layer.is_stack else "small"  # whose situations are most, whatever the layer's own is
    return layer.with_decimal_epsilon.model_copy(update={"layer": name, "family": family})
