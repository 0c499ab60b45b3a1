"""The checklist: runs each step in order, until one fails that the later ones need."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from encoder_conformance.commands.smoke.diagnosis import diagnose_numbers, or_lost, wrong_gradients
from encoder_conformance.commands.smoke.placeholders import find_raised_placeholder, locate_error, placeholders_of
from encoder_conformance.commands.smoke.questions import NUMBERS, SmokeTasks
from encoder_conformance.commands.smoke.round_trip import mismatch
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Specification
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.subject import Subject
from encoder_conformance.worker.failure import Failure

State = Literal["ok", "failed", "not declared", "not tried"]
Blame = Literal["blank", "adapter", "architecture", "implementation"]
"""The cause of a failed step: a blank that is left, the adapter, a layer that the implementation's fixed architecture
does not support, or the implementation."""

NAMES = (
    "manifest", "start", "build", "parameters", "output", "numbers",
    "stages", "weights", "gradients", "refusal", "forms",
)  # fmt: skip
"""Every step, in order."""


@dataclass(frozen=True)
class SmokeStep:
    """One step. `said` is the result, `do` the advice, one line each."""

    name: str
    state: State
    said: str
    do: tuple[str, ...] = ()
    blame: Blame | None = None


def verdict(steps: list[SmokeStep]) -> Blame | Literal["ok"]:
    """The fault to fix first, by the first failed step; "ok" if none failed."""
    return next((step.blame for step in steps if step.blame), "ok")


_LOST = frozenset({Outcome.CRASH, Outcome.TIMEOUT})
_NO_ANSWER = frozenset({Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.NOT_RUN})
_MOST_BLANKS = 8
_NUMBERS_FIRST = "not judged until the numbers are right"


class Checklist:
    """Iterates over the steps as they are done. Steps that need a failed one are left out."""

    def __init__(
        self,
        subject: Subject,
        specification: Specification,
        layer: str | None,
        waiting: Callable[[str], object] = lambda said: None,
    ) -> None:
        """`layer`: the only layer to use; None chooses some. Goldens that are
        not frozen are computed.

        `waiting` is called with a sentence before each wait for the worker.
        """
        ready = subject.worker.ready
        self._subject, self._session = subject, subject.worker
        self._folder, self._implementation = ready.folder, ready.implementation
        self._questions, self._observations = SmokeTasks(self._implementation, specification, layer), Observations()
        self._own_names: dict[str, str] = {}
        self._observed: dict[tuple[str, Check], Tensors] = {}
        self._goldens: dict[str, Expected] = {}
        self._waiting, self._hung = waiting, False

    def __iter__(self) -> Iterator[SmokeStep]:
        capabilities = self._implementation.capabilities
        yield SmokeStep("manifest", "ok", f"{', '.join(capabilities.checks)}; in {', '.join(capabilities.dtypes)}")
        self._waiting(f"start: at most {self._implementation.timeouts.start:g} s")
        if failure := self._session.worker.start():
            yield self._adapter_failure("start", failure.message)
            return
        versions = ", ".join(f"{name} {version}" for name, version in self._session.versions.items())
        yield SmokeStep("start", "ok", versions or "it reports no versions")
        outputs = self._questions.check("output")
        if not outputs:
            layers = " and ".join(self._questions.layers) or "every layer"
            message = f"its manifest opts out of the output of {layers}, {' and '.join(NUMBERS)}"
            advice = ("declare the check output, and a layer that it can do",)
            yield SmokeStep("build", "failed", message, advice, "adapter")
            return
        if (yield from self._check_parameters(outputs[0])):
            for step in self._check_answers(outputs):
                yield step
                if self._hung and step.state == "failed":
                    return  # every further step would wait as long again

    @property
    def lost(self) -> list[Diagnosis]:
        """A diagnosis for each format of which a fault of ours kept something from being seen, so far."""
        return self._observations.out_of_sight(self._implementation.name)

    def _check_parameters(self, task: Task) -> Generator[SmokeStep, None, bool]:
        self._waiting(f"build {task.case.layer.layer}: at most {self._implementation.timeouts.build:g} s")
        stored = self._session.parameters(task)
        if isinstance(stored, Failure):
            yield self._build_failure(task, stored)
            return False
        yield SmokeStep("build", "ok", f"{task.case.layer.layer} in {task.dtype}")
        self._own_names = stored.own
        if error := mismatch(stored, task.case.layer):
            yield SmokeStep("parameters", "failed", *error, "adapter")
            return False
        yield SmokeStep("parameters", "ok", f"{len(stored.sent)} came back bit for bit")
        return True

    def _check_answers(self, outputs: list[Task]) -> Iterator[SmokeStep]:
        records = self._run_tasks(outputs)
        if failed := next(filter(_has_no_values, records), None):
            yield self._adapter_failure("output", f"{failed.case}: {failed.message}")
            return
        yield SmokeStep("output", "ok", f"shape and dtype are right in {len(records)} cases")
        # Before the numbers are judged, since stages make their diagnosis surer.
        stages = self._run_tasks(self._questions.check("stages"))
        numbers = self._judge_numbers("numbers", records)
        yield numbers
        yield self._judge_numbers("stages", stages, diagnosed=numbers.state == "failed")
        if numbers.state == "ok":
            yield self._judge_numbers("weights", self._run_tasks(self._questions.check("weights")))
            yield self._check_gradients()
        else:
            yield SmokeStep("weights", "not tried", _NUMBERS_FIRST)
            yield SmokeStep("gradients", "not tried", _NUMBERS_FIRST)
        yield self._check_refusals(numbers)
        yield self._check_forms(numbers)

    def _judge_numbers(self, name: str, records: list[Record], *, diagnosed: bool = False) -> SmokeStep:
        """The step for records whose values are compared. `diagnosed`: an earlier step has shown the cause."""
        if not records:
            return SmokeStep(name, "not declared", self._questions.why_none(name))
        wrong = [record for record in records if record.outcome not in EXPECTED]
        if failed := next((record for record in wrong if record.outcome in _NO_ANSWER), None):
            remedy = f"or take {name} out of capabilities"
            return self._adapter_failure(name, f"{failed.case}: {failed.message}", remedy)
        if wrong:
            diagnose = name in ("numbers", "stages") and not diagnosed
            advice = self._diagnose(wrong[0].dtype) if diagnose else ()
            said = f"{len(wrong)} of {len(records)} cases are wrong; {wrong[0].case}: {wrong[0].message}"
            return SmokeStep(name, "failed", said, advice, "implementation")
        largest = max((record.rms or 0.0 for record in records), default=0.0)
        return SmokeStep(name, "ok", f"{len(records)} cases in {records[0].dtype}, rms at most {largest:.2f} σ")

    def _check_gradients(self) -> SmokeStep:
        tasks = self._questions.check("gradients")
        records = self._run_tasks(tasks)
        step = self._judge_numbers("gradients", records)
        for task, record in zip(tasks, records, strict=False):
            if step.blame == "implementation" and record.outcome == Outcome.FAIL:
                observed = self._observed[record.case, "gradients"]
                found = partial(wrong_gradients, task.case, observed, record, self._own_names)
                return SmokeStep("gradients", "failed", step.said, tuple(or_lost(found)), "implementation")
        return step

    def _check_refusals(self, numbers: SmokeStep) -> SmokeStep:
        records = self._run_tasks(self._questions.refusals)
        if not records:
            return SmokeStep("refusal", "not declared", self._questions.why_none("refusal"))
        explained: tuple[Kind, ...] = ("after-refusal", "beside-refusal") if numbers.state == "failed" else ()
        wrong = (record for record in records if record.outcome not in EXPECTED and record.kind not in explained)
        if failed := next(wrong, None):
            advice = "refuse it in the layer; Adapter.refusal says what an exception of the framework's own refuses"
            remedy = f"{advice}; or take refusal out of checks"
            return self._adapter_failure("refusal", f"{failed.case}: {failed.message}", remedy)
        return SmokeStep("refusal", "ok", f"{len(records)} wrong requests are refused")

    def _check_forms(self, numbers: SmokeStep) -> SmokeStep:
        records = self._run_tasks(self._questions.forms)
        failures = [record for record in records if record.outcome not in EXPECTED]
        for failed in failures:
            message = f"its manifest declares what {failed.case} in {failed.dtype} needs: {failed.message}"
            if failed.outcome in _NO_ANSWER or _has_no_values(failed):
                return self._adapter_failure("forms", message, "fix it, or take that out of capabilities")
            if numbers.state == "ok":
                advice = "fix it, or take that out of capabilities, or declare the deviation"
                return SmokeStep("forms", "failed", message, (*self._diagnose(failed.dtype), advice), "implementation")
        if failures:
            return SmokeStep("forms", "not tried", f"answered; {_NUMBERS_FIRST}")
        if not records:
            message = "its manifest has no other dtype, layout, kind of mask or mode that a case asks for"
            return SmokeStep("forms", "not declared", message)
        return SmokeStep("forms", "ok", f"{len(records)} cases in other dtypes, layouts, kinds of masks and modes")

    def _run_tasks(self, tasks: list[Task]) -> list[Record]:
        """The records of these tasks, up to the first that costs the worker."""
        records: list[Record] = []
        for answer in judge(self._subject, self._announced(tasks), self._expected, self._observations):
            records.append(answer.record)
            if answer.tensors is not None:
                self._observed[answer.task.case.id, answer.task.check] = answer.tensors
            self._hung = self._hung or answer.record.outcome == Outcome.TIMEOUT
            if answer.record.outcome in _LOST:
                break
        return records

    def _announced(self, tasks: list[Task]) -> Iterator[Task]:
        for task in tasks:
            limit = self._implementation.timeouts.run
            self._waiting(f"{task.check} of {task.case.id} in {task.dtype}: at most {limit:g} s")
            yield task

    def _expected(self, case: Case) -> Expected:
        """The golden of a case, had once: the request for gradients needs it, and so does the judge."""
        if case.id not in self._goldens:
            goldens = Goldens([case], jobs=0)
            goldens.compute()
            self._goldens[case.id] = goldens(case)
        return self._goldens[case.id]

    def _build_failure(self, task: Task, failure: Failure) -> SmokeStep:
        """The failed step of a layer that was not built. If the layer was refused, the architecture may be fixed."""
        name = task.case.layer.layer
        remedies = "conform smoke --layer ID|YAML, or capabilities.layers"
        advice = f"if its architecture is fixed, name a layer that it has: {remedies}"
        step = self._adapter_failure("build", f"{name}: {failure.message}", advice)
        return replace(step, blame="architecture") if failure.refused and step.blame == "adapter" else step

    def _diagnose(self, dtype: str) -> tuple[str, ...]:
        """The causes that explain the observations of one layer, the first with a failure."""

        def causes() -> list[str]:
            observations = self._observations.of(dtype)
            layer = next((observation.case.layer for observation in observations if observation.failed), None)
            of_layer = [observation for observation in observations if observation.case.layer == layer]
            name, own = self._implementation.name, self._own_names
            return diagnose_numbers(name, of_layer, own) if of_layer else []

        return tuple(or_lost(causes))

    def _adapter_failure(self, name: str, message: str, remedy: str = "") -> SmokeStep:
        """The failed step of a check without a comparable answer. It blames a blank that is left, or the adapter."""
        if blank := find_raised_placeholder(self._folder, message):
            other_blanks = [f"also left: {other}" for other in placeholders_of(self._folder) if other != blank]
            return SmokeStep(name, "failed", f"a blank is left at {blank}", tuple(other_blanks[:_MOST_BLANKS]), "blank")
        advice = [remedy] if remedy else []
        if "ModuleNotFoundError" in message:
            install = f"pip install '{self._implementation.install}'"
            advice.append(f"{install}, and list under `requires` what the adapter imports")
        self._session.worker.write_log()
        if location := locate_error(message, self._session.log, self._folder):
            advice.append(f"it was {location}")
        return SmokeStep(name, "failed", message, tuple(advice), "adapter")


def _has_no_values(record: Record) -> bool:
    """Whether no values could be compared: there is no answer, or its shape or dtype is wrong."""
    problems = [tensor.problem.kind for tensor in record.tensors if tensor.problem]
    not_judged = record.outcome == Outcome.FAIL and not record.tensors
    return record.outcome in _NO_ANSWER or not_judged or any(kind in ("shape", "dtype") for kind in problems)
