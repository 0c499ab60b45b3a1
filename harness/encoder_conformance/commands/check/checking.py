"""Checks a module: examines it in a worker, asks and judges its cases there, part by part."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from encoder_conformance.commands.check.also import Beside
from encoder_conformance.commands.check.by_reading import by_norm, by_reading
from encoder_conformance.commands.check.chosen import (
    Chosen,
    chosen,
    explained_in_both,
    number_that_hides,
    with_usual_number_first,
)
from encoder_conformance.commands.check.covered import asked_in
from encoder_conformance.commands.check.findings import findings_of, of_way_back
from encoder_conformance.commands.check.of_model import model_findings
from encoder_conformance.commands.check.results import CheckResult, PartResult, RefusedPart
from encoder_conformance.commands.check.single_parameters import of_sizes
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.commands.check.unasked import not_asked
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.oracle.layer_differences import OF_MASKS, differences
from encoder_conformance.oracle.published_layers import published_as
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.findings import Finding, Problem
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.subjects.cases import module_cases, of_other_sizes, own_cases
from encoder_conformance.subjects.module import ModuleWorker, module_session
from encoder_conformance.subjects.subject import Subject, layer_as_judged

_NAME = "the module"
_LAST = 2
"""Steps after the answers: what explains them, and the way back."""


@dataclass(frozen=True)
class ExaminedPart:
    """A part that was examined, as a subject under a name of its own; its layer is None if it cannot be judged.

    `like`: the part that it is alike in all that was read, so that it need not be asked.
    """

    at: str | None
    subject: Subject
    like: str | None = None

    @property
    def described(self) -> ModuleDescription:
        return self.subject.as_module


class Checking:
    """One check, and the worker that has the module."""

    def __init__(
        self, request: CheckRequest, log: Path, progress: Progress, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables`: environment variables of its worker.

        Raises InputError if no interpreter can run the worker, or what the module should be cannot be read.
        """
        self._progress = progress
        self.request = request.with_layer_read(log.with_name(f"stated-{log.name}"))
        session = module_session(self.request, self.request.target, log, variables)
        self.module = ModuleWorker(self.request, log, session)

    def result(self) -> CheckResult:
        """Raises InputError for a target that is no module, or holds no layer."""
        self._refused: list[RefusedPart] = []
        self._whole = ""
        with contextlib.closing(self.module):
            parts = [self.judged(part) for part in self.parts()]
            of_whole = self.of_whole() if any(part.at and part.layer is not None for part in parts) else ()
            self.files_read = self.module.files_read()
        versions = dict(parts[0].described.versions)
        target, refused = self.request.target, tuple(self._refused)
        in_parts = any(part.at for part in parts) and self.request.at is None
        return CheckResult(
            target=target,
            versions=versions,
            parts=tuple(parts),
            refused=refused,
            whole=self._whole if in_parts else "",
            beside=self.module.beside if in_parts else (),
            of_whole=of_whole,
        )

    def of_whole(self) -> tuple[Finding, ...]:
        """What is found of a model around those parts that are judged; () where the user named one of them."""
        if self.request.at is not None:
            return ()
        return tuple(model_findings(self.module.masks_of_model(), stated=self.request.layer is not None))

    def parts(self) -> Iterator[ExaminedPart]:
        """The module that was named, as a layer or a stack; if it is neither, every layer that is found in it.

        A part has to be asked before the next is taken: the worker then answers as that.
        """
        self._progress.begin("examining the module", 1)
        found = self.module.examined(self.request.at, like=self.request.at is None)
        if isinstance(found, Problem) and found.kind == "takes-too-long":
            raise found.error(self.request.target)
        usable = isinstance(found, Subject) and found.layer is not None
        paths = [] if usable or self.request.at is not None else self.module.listed()
        if not paths:
            yield self._part(self.request.at, found)
            return
        asked: dict[str, str] = {}  # what a part is called, and what was read of it → the part that is asked for it
        problem: Problem | None = None
        whole, self._whole = found, _why_no_layer(found)
        for path in paths:
            found = self.module.examined(path, like=True)
            if len(paths) == 1 and _says_more(whole, found):
                yield self._part(None, whole)  # which is no layer for its own reason, and not for that of its attention
                return
            if isinstance(found, Problem):
                problem = problem or found
                self._refused.append(RefusedPart(at=path, **dict(found)))
                continue
            part = self._part(path, found)
            like = _like(part.described, asked)
            yield part if part.subject.layer is None else replace(part, like=like)
            asked[path] = like or path
            asked.setdefault(_read_of(part.described), path)
        if problem is None or asked:
            return
        if len(paths) > 1 or isinstance(whole, Problem):
            raise problem.error(self.request.target)
        yield self._part(None, whole)  # which is no layer for its own reason, and not for that of its attention

    def _part(self, at: str | None, found: Subject | Problem) -> ExaminedPart:
        if isinstance(found, Problem):
            raise found.error(self.request.target)
        described, subject = found.as_module, found.named(at or _NAME)
        computed = described.unplaced and described.searched is None
        if found.layer is None or not described.parameters or computed:
            return ExaminedPart(at, replace(subject, layer=None))
        if not_taken := [dtype for dtype in self.request.dtypes if dtype not in described.dtypes]:
            raise _not_in(not_taken, described).error(self.request.target)
        layer = layer_as_judged(found.layer, at or "", stated=described.stated is not None)
        assert subject.implementation is not None
        known = subject.implementation.model_copy(update={"deviations": self.request.declared})
        return ExaminedPart(at, replace(subject, layer=layer, implementation=known))

    def cases(self, part: ExaminedPart) -> list[Case]:
        layer = part.subject.layer
        if layer is None or part.like or any(of_other_sizes(layer, part.subject.parameters)):
            return []
        portable = module_cases(part.described, layer, self.request.level)
        return [*portable, *own_cases(part.described, layer, part.subject.parameters, self.request.level)]

    def judged(self, part: ExaminedPart) -> PartResult:
        """Ask the part that was taken last, and judge its answers and those of its variants."""
        cases, subject, request = self.cases(part), part.subject, self.request
        tasks = subject.tasks(cases) if cases else []
        progress = self._progress.whole("judging", len(cases) + len(tasks) + _LAST)
        golden = partial(_of, expectations(cases, request.jobs, progress) if cases else {})
        way_back = self.module.way_back() if tasks else ()
        progress.step("asked its way back")
        records, diagnoses, choice = self._asked(part, tasks, golden, progress, way_back)
        is_declared, is_part = bool(request.declared), bool(part.at)
        found = PartResult(
            at=part.at or "",
            described=part.described,
            without=_without(part.described, request.reference),
            layer=subject.layer if records or part.like else None,
            as_told=part.described.stated is not None,
            findings=(
                *findings_of(part.described, declared=is_declared, reference=request.reference, part=is_part),
                *of_sizes(subject),
                *of_way_back(way_back),
                *([choice.finding] if choice else []),
            ),
            way_back=way_back,
            records=records,
            diagnoses=diagnoses,
            asked=asked_in(cases, records),
            like=part.like,
            published=_published(part.described),
        )
        if records or part.like:
            found = found.model_copy(update={"not_asked": tuple(not_asked(found))})
        if not request.also or part.described.same_as:
            return found
        beside = Beside(subject, found, cases, choice.names if choice else (), golden, request, self._progress)
        variants = beside.variants(self.module, lambda backend: self._with_backend(backend, part))
        return found.model_copy(update={"variants": tuple(variants)})

    def _asked(
        self,
        part: ExaminedPart,
        tasks: list[Task],
        golden: Callable[[Case], Expected],
        progress: Progress,
        way_back: tuple[WayBackAnswer, ...],
    ) -> tuple[tuple[Record, ...], tuple[Diagnosis, ...], Chosen | None]:
        """The judged answers, what explains those that are wrong, and the choices that were found to, if any."""
        subject, seen, records = part.subject, Observations(), list[Record]()
        for answer in judge(subject, tasks, golden, seen):
            records.append(answer.record)
            progress.step(answer.record.case)
        progress.say("looking for what explains it, if anything is wrong: up to half a minute")
        cases = list({task.case.id: task.case for task in tasks}.values())
        chooses = part.described.stated is None and not self.request.declared
        choice = number_that_hides(subject, cases, records, golden) if chooses else None
        diagnoses: tuple[Diagnosis, ...] = ()
        if choice is None:
            found = seen.diagnoses(subject.name, in_catalogue_alone=needs_no_equation(part.described))
            in_both = explained_in_both(records, [by_reading(part.described, each) for each in found])
            diagnoses = tuple(with_usual_number_first(by_norm(part.described, each)) for each in in_both)
            of_output = ("dropout-gradient", "gradient")
            own = any(each.name in of_output and each.outcome == "pass" for each in way_back)
            choice = chosen(subject, cases, records, diagnoses, golden, own_gradients=own) if chooses else None
        progress.step("looked for what explains it")
        return (choice.records, (), choice) if choice else (tuple(records), diagnoses, None)

    def _with_backend(self, backend: str, part: ExaminedPart) -> PartResult:
        """The same of a layer of Keras that is made with another backend, as the layer that it was judged as.

        Raises InputError where it cannot be made or judged there.
        """
        request = replace(self.request, also=(), layer=part.subject.layer, resize=False, at=part.at)
        log = self.module.session.log
        keras = {"KERAS_BACKEND": backend}
        return Checking(request, log.with_name(f"{backend}-{log.name}"), self._progress, keras).result().parts[0]


def _like(described: ModuleDescription, asked: Mapping[str, str]) -> str | None:
    """The part that is asked for this one, of those asked before it; None where it is asked itself."""
    if described.same_as:
        return asked[described.same_as]
    proved = described.proof is not None and described.proof.holds
    return asked.get(_read_of(described)) if proved else None


def _read_of(described: ModuleDescription) -> str:
    """All that was read of a part, without what names it."""
    return described.model_copy(update={"adapter": "", "same_as": ""}).model_dump_json()


def _of(expected: Mapping[str, Expected], case: Case) -> Expected:
    return expected[case.id]


def _published(described: ModuleDescription) -> tuple[str, ...]:
    """The published layers that it was read and proved to be, where nobody stated one."""
    read, proof = described.layer, described.proof
    known = read is not None and described.stated is None and proof is not None and proof.holds
    return published_as(read) if read is not None and known else ()


def needs_no_equation(described: ModuleDescription) -> bool:
    """Whether no equation of a step can say more: where an item of the batch changes another none holds of one item,
    and where the layer was read, proved, and is another than the stated one, that is said key by key."""
    read, stated, proof = described.layer, described.stated, described.proof
    proved = proof is not None and proof.holds and described.searched is None
    if read is None or stated is None:
        return described.across_batch
    is_another = any(key not in OF_MASKS for key, _, _ in differences(read, stated))
    return described.across_batch or (proved and is_another)


def _without(described: ModuleDescription, reference: ModuleDescription | None) -> tuple[str, ...]:
    """The arguments that no verdict covers: the module's own, and those of the one that states its layer."""
    without = *described.judged_without, *described.idle_here, *(reference.judged_without if reference else ())
    return tuple(dict.fromkeys(without))


def _why_no_layer(whole: Subject | Problem) -> str:
    if isinstance(whole, Problem):
        return whole.message
    read = whole.as_module.not_read
    return read.sentence or read.problem if read is not None else ""


def _says_more(whole: Subject | Problem, part: Subject | Problem) -> bool:
    """Whether what a module is refused for says more than what the one part that was found in it is not: it is of two
    sequences, or that part is its attention, or its feed-forward network, alone."""
    several = isinstance(whole, Problem) and whole.kind == "takes-several-inputs"
    if isinstance(part, Problem) or part.layer is not None:
        return isinstance(part, Problem) and several
    read = part.as_module.not_read
    alone = read is not None and not {"attention_alone", "network_alone"}.isdisjoint(read.features)
    return several or (alone and bool(_why_no_layer(whole)))


def _not_in(dtypes: list[DtypeName], described: ModuleDescription) -> Problem:
    names = " or ".join(dtypes)
    problem = f"it gives no output in {names} for parameters and x in {names}"
    if described.narrow_inside and "float64" in dtypes:
        problem = "something in it is no more exact than float32, so float64 says nothing"
        if described.epsilon_of_format:
            problem = "its norms take the epsilon of the format, and the layer was read in float32, which has another"
    taken = ", ".join(described.dtypes)
    return Problem(message=problem, hint=f"it takes {taken}" if taken else "leave out --dtype")
