"""The variants of a module that `--also` names: compiled, exported, in a narrow format, with another backend.

Each is judged as the module is, by the rounding of its own format, forward alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from encoder_conformance.commands.check.covered import asked_in
from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.commands.check.results import PartResult, VariantResult
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.loop import Unseen, judge
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.findings import Problem
from encoder_conformance.protocol.variants import VARIANTS, ModuleVariant
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.words import listed
from encoder_conformance.subjects.cases import module_cases
from encoder_conformance.subjects.module import ModuleWorker
from encoder_conformance.subjects.subject import Subject, found_to_be

_LOCATED = 2
"""Cases with a wrong output of which the stages are asked."""


def variants_from(words: Iterable[str]) -> tuple[str, ...]:
    """The words of several lists, each once. Raises InputError for one that is not known."""
    found = [word.strip() for each in words for word in each.split(",")]
    for word in found:
        if word not in VARIANTS:
            hint = f"{nearest(word, VARIANTS)} (one or several of {', '.join(VARIANTS)})"
            raise InputError(f"no variant {word!r}", where="--also", hint=hint)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Beside:
    """What the variants of a part are judged beside: the part, its result, and the cases that it was asked.

    `chosen`: the deviations that it was found to choose, where it was judged as that. `expected`: of its cases.
    """

    subject: Subject
    found: PartResult
    cases: Sequence[Case]
    chosen: tuple[str, ...]
    expected: Callable[[Case], Expected]
    request: CheckRequest
    progress: Progress

    def variants(self, module: ModuleWorker, with_backend: Callable[[str], PartResult]) -> Iterator[VariantResult]:
        """Those that are asked for; none of a part that another was asked in the place of.

        `module`: the worker that has the part; `with_backend`: the check of it anew.
        """
        if self.found.like:
            return
        for place, variant in enumerate(map(VARIANTS.__getitem__, self.request.also), 1):
            self.progress.begin(f"form {place} of {len(self.request.also)}: {variant.word}", 1)
            if problem := self._unfit(variant):
                yield _left_out(variant, problem)
            elif variant.backend:
                yield _of_backend(variant, with_backend)
            else:
                yield self._made(variant, module)

    def _unfit(self, variant: ModuleVariant) -> Problem | None:
        """Why the part has no such variant that could be judged; None where it may have."""
        if self.found.layer is None or not self.found.records:
            return Problem(message="the module itself could not be judged", hint="", kind="module-not-judged")
        framework = self.found.described.framework
        if framework in variant.frameworks:
            return None
        own = [each.word for each in VARIANTS.values() if framework in each.frameworks]
        message = f"a module of {framework} has none; it has {listed(own)}"
        return Problem(message=message, hint="", kind="form-not-of-framework")

    def _made(self, variant: ModuleVariant, module: ModuleWorker) -> VariantResult:
        if refused := module.vary(self.subject.at, variant.word):
            return _left_out(variant, refused)
        try:
            return self._judged(variant)
        finally:
            module.vary(self.subject.at, "")

    def _judged(self, variant: ModuleVariant) -> VariantResult:
        cases = list(_asked(variant, self.cases))
        expected = self.expected
        if variant.asked_as != "float32":
            described = self.subject.as_module.model_copy(update={"dtypes": (variant.asked_as,)})
            assert self.subject.layer is not None
            cases = module_cases(described, self.subject.layer, self.request.level)
        tasks, more = [*self._tasks(variant, cases, "output")], len(cases) if variant.asked_as != "float32" else 0
        progress = self.progress.whole(f"asking {variant.word}", len(tasks) + more)
        if more:
            expected = partial(_of, expectations(cases, self.request.jobs, progress))
        records = [*self._records(tasks, expected)]
        wrong = {record.case for record in records if record.outcome not in EXPECTED}
        located = [case for case in cases if case.id in wrong][:_LOCATED]
        stages = [*self._records([*self._tasks(variant, located, "stages")], expected)]
        return VariantResult(
            word=variant.word,
            said=variant.said,
            format=variant.asked_as,
            records=tuple(records),
            asked=asked_in(cases, records),
            first_stage=_first_apart(stages, records),
        )

    def _tasks(self, variant: ModuleVariant, cases: Iterable[Case], check: str) -> Iterator[Task]:
        """Where the module itself deviates as it chose, the variant is judged as that."""
        assert self.subject.implementation is not None
        name = f"{self.subject.name}, {variant.word}"
        known = found_to_be(self.subject.implementation, name, dtypes=(variant.asked_as,))
        choosing = known.model_copy(update={"deviations": declared_from(self.chosen)}) if self.chosen else known
        deviating = {record.case for record in self.found.records if record.outcome is Outcome.DEVIATES}
        rounded = None if variant.dtype == variant.asked_as else variant.asked_as
        for case in cases:
            asked = replace(self.subject, implementation=choosing if case.id in deviating else known)
            for task in asked.tasks([case], (variant.asked_as,)):
                if task.check == check:
                    yield replace(task, dtype=variant.dtype, rounded_as=rounded)

    def _records(self, tasks: Sequence[Task], expected: Callable[[Case], Expected]) -> Iterator[Record]:
        for answer in judge(self.subject, tasks, expected, Unseen()):
            self.progress.step(answer.record.case)
            yield answer.record


def _of_backend(variant: ModuleVariant, with_backend: Callable[[str], PartResult]) -> VariantResult:
    """Of a layer of Keras: the outputs of the check with that backend."""
    try:
        part = with_backend(variant.backend)
    except InputError as error:
        return _left_out(variant, Problem(message=error.problem, hint="", kind="form-not-made"))
    records = tuple(record for record in part.records if record.check == "output" and record.dtype == variant.dtype)
    if not records:
        message = part.errors[0].message if part.errors else "it was asked nothing there"
        return _left_out(variant, Problem(message=message, hint="", kind="form-not-made"))
    stages = [record for record in part.records if record.check == "stages"]
    return VariantResult(
        word=variant.word,
        said=variant.said,
        format=variant.asked_as,
        records=records,
        asked=part.asked,
        first_stage=_first_apart(stages, records),
    )


def _first_apart(stages: Iterable[Record], outputs: Iterable[Record]) -> str | None:
    """The first stage that is wrong, of those that are shown: the output itself, where no other is."""
    apart = (record.stage for record in (*stages, *outputs) if record.stage)
    return next(apart, None)


def _left_out(variant: ModuleVariant, problem: Problem) -> VariantResult:
    return VariantResult(
        word=variant.word,
        said=variant.said,
        format=variant.asked_as,
        problem=problem.message,
        problem_kind=problem.kind,
    )


def _of(made: Mapping[str, Expected], case: Case) -> Expected:
    return made[case.id]


def _asked(variant: ModuleVariant, cases: Sequence[Case]) -> Iterator[Case]:
    """Those in float32. Where each kind of arguments is compiled anew, one position or item, for which code is compiled
    apart, is asked once."""
    alone = False
    for case in cases:
        if "float32" not in case.situation.dtypes:
            continue
        one = 1 in (case.situation.batch, case.situation.sequence)
        if not (variant.compiles and one and alone):
            yield case
        alone = alone or one
