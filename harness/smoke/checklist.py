"""The checklist itself: each step in order, until one fails that the next ones need."""

from collections.abc import Generator, Iterator
from dataclasses import replace

from encoder_conformance.asking import ask
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.golden.build import compute
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.reason import Kind
from encoder_conformance.results import Record
from encoder_conformance.smoke.diagnosis import diagnose_numbers
from encoder_conformance.smoke.placeholders import place_of, placeholder_behind, placeholders_of
from encoder_conformance.smoke.questions import NUMBERS, Questions
from encoder_conformance.smoke.round_trip import mismatch
from encoder_conformance.smoke.step import Step
from encoder_conformance.smoke.wrong_gradient import wrong_gradients
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.load import Specification
from encoder_conformance.spec.situation import Check
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

_NO_ANSWER = frozenset({Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.NOT_RUN})
_BLANKS_SAID = 8
_FIRST = "the numbers come first"


class Checklist:
    """Iterate over it to get each step when it is done. Those that need one that failed are not there."""

    def __init__(self, session: Session, ready: Ready, specification: Specification, layer: str | None) -> None:
        """`layer`: ask of this one alone. One of the user's own has its goldens computed."""
        self._session, self._folder, self._of = session, ready.folder, ready.implementation
        self._questions, self._seen = Questions(self._of, specification, layer), Observations()
        self._computed = layer in specification.own_layers
        self._own: dict[str, str] = {}
        self._observed: dict[tuple[str, Check], Tensors] = {}

    def __iter__(self) -> Iterator[Step]:
        can = self._of.capabilities
        yield Step("manifest", "ok", f"{', '.join(can.checks)}; in {', '.join(can.dtypes)}")
        if failure := self._session.start():
            yield self._broken("start", failure.message)
            return
        versions = ", ".join(f"{name} {version}" for name, version in self._session.versions.items())
        yield Step("start", "ok", versions or "it says no version of anything")
        outputs = self._questions.check("output")
        if not outputs:
            of = " and ".join(self._questions.layers) or "every layer"
            said = f"its manifest opts out of the output of {of}, {' and '.join(NUMBERS)}"
            yield Step("build", "failed", said, ("declare the check output, and a layer that it can do",), "adapter")
            return
        if (yield from self._holds_its_parameters(outputs[0])):
            yield from self._answers(outputs)

    def _holds_its_parameters(self, task: Task) -> Generator[Step, None, bool]:
        found = self._session.parameters(task)
        if isinstance(found, Failure):
            yield self._not_built(task, found)
            return False
        yield Step("build", "ok", f"{task.case.layer.layer} in {task.dtype}")
        self._own = found.own
        if wrong := mismatch(found, task.case.layer):
            yield Step("parameters", "failed", *wrong, "adapter")
            return False
        yield Step("parameters", "ok", f"{len(found.sent)} came back bit for bit")
        return True

    def _answers(self, outputs: list[Task]) -> Iterator[Step]:
        records = self._put(outputs)
        if bad := _first(record for record in records if _no_array(record)):
            yield self._broken("output", f"{bad.case}: {bad.message}")
            return
        yield Step("output", "ok", f"shape and dtype are right in {len(records)} cases")
        stages = self._put(self._questions.check("stages"))  # before the numbers are judged: they make a guess surer
        numbers = self._of_numbers("numbers", records)
        yield numbers
        yield self._of_numbers("stages", stages, guessed=numbers.state == "failed")
        if numbers.state == "ok":
            yield self._of_numbers("weights", self._put(self._questions.check("weights")))
            yield self._gradients()
        else:
            yield Step("weights", "not tried", _FIRST)
            yield Step("gradients", "not tried", _FIRST)
        yield self._refusals(numbers)
        yield self._forms(numbers)

    def _of_numbers(self, name: str, records: list[Record], *, guessed: bool = False) -> Step:
        """`guessed`: an earlier step has said why already."""
        if not records:
            return Step(name, "not declared", "its manifest does not have it")
        if bad := _first(record for record in records if record.outcome in _NO_ANSWER):
            return self._broken(name, f"{bad.case}: {bad.message}", f"or take {name} out of capabilities")
        if bad := _first(record for record in records if record.outcome not in EXPECTED):
            why = name in ("numbers", "stages") and not guessed
            do = self._why(bad.dtype) if why else ()
            where = f"{sum(record.outcome not in EXPECTED for record in records)} of {len(records)} cases are wrong"
            return Step(name, "failed", f"{where}; {bad.case}: {bad.message}", do, "implementation")
        largest = max((record.rms or 0.0 for record in records), default=0.0)
        return Step(name, "ok", f"{len(records)} cases in {records[0].dtype}, rms at most {largest:.2f} σ")

    def _gradients(self) -> Step:
        tasks = self._questions.check("gradients")
        records = self._put(tasks)
        step = self._of_numbers("gradients", records)
        for task, record in zip(tasks, records, strict=True):
            if step.blame == "implementation" and record.outcome == Outcome.FAIL:
                observed = self._observed[record.case, "gradients"]
                do = wrong_gradients(task.case, observed, record, self._own)
                return Step("gradients", "failed", step.said, tuple(do), "implementation")
        return step

    def _refusals(self, numbers: Step) -> Step:
        records = self._put(self._questions.refusals)
        if not records:
            return Step("refusal", "not declared", "its manifest does not have it")
        wrong_anyway: tuple[Kind, ...] = ("after-refusal", "beside-refusal") if numbers.state == "failed" else ()
        refused = [record for record in records if record.kind in wrong_anyway]
        if bad := _first(record for record in records if record.outcome not in EXPECTED and record not in refused):
            do = "refuse it in the layer; Adapter.refusal says what an exception of the framework's own refuses"
            return self._broken("refusal", f"{bad.case}: {bad.message}", f"{do}; or take refusal out of checks")
        return Step("refusal", "ok", f"{len(records)} wrong requests are refused")

    def _forms(self, numbers: Step) -> Step:
        records = self._put(self._questions.forms)
        wrong = [record for record in records if record.outcome not in EXPECTED]
        for bad in wrong:
            said = f"its manifest declares what {bad.case} in {bad.dtype} needs: {bad.message}"
            if bad.outcome in _NO_ANSWER or _no_array(bad):
                return self._broken("forms", said, "mend it, or take that out of capabilities")
            if numbers.state == "ok":
                do = "mend it, or take that out of capabilities, or declare the deviation"
                return Step("forms", "failed", said, (*self._why(bad.dtype), do), "implementation")
        if wrong:
            return Step("forms", "not tried", f"they are answered; what is in them: {_FIRST}")
        if not records:
            return Step("forms", "not declared", "its manifest has one dtype, one layout, one kind of mask, one mode")
        return Step("forms", "ok", f"{len(records)} cases in other dtypes, layouts, kinds of masks and modes")

    def _put(self, tasks: list[Task]) -> list[Record]:
        return [self._put_one(task) for task in tasks]

    def _put_one(self, task: Task) -> Record:
        if self._computed:
            golden = compute(task.case, constants())
        else:
            golden = read_golden(task.case, read_golden_manifest(), constants())
        expected = in_format(task.case, golden, task.format)
        asked = ask(self._session, task, expected, constants())
        if asked.answers is not None:
            self._observed[task.case.id, task.check] = asked.answers
            self._seen.see(task, expected, asked.record, asked.answers)
        return asked.record

    def _not_built(self, task: Task, found: Failure) -> Step:
        """A layer that it refuses is not shown to be one that it should build: its architecture may be fixed."""
        name = task.case.layer.layer
        ways = "conform smoke --layer ID|YAML, or capabilities.layers"
        do = f"if its architecture is fixed, name a layer that it has: {ways}"
        step = self._broken("build", f"{name}: {found.message}", do)
        return replace(step, blame="architecture") if found.refused and step.blame == "adapter" else step

    def _why(self, dtype: str) -> tuple[str, ...]:
        """What accounts for what was seen of one layer, the first that is wrong somewhere."""
        seen = self._seen.by_dtype().get(dtype, [])
        layer = next((observation.case.layer for observation in seen if observation.failed), None)
        of_it = [observation for observation in seen if observation.case.layer == layer]
        return tuple(diagnose_numbers(self._of.name, of_it, self._own)) if of_it else ()

    def _broken(self, name: str, message: str, do: str = "") -> Step:
        """What gave no answer that could be judged: a blank that is left, or the adapter's fault."""
        if blank := placeholder_behind(self._folder, message):
            others = [f"also left: {other}" for other in placeholders_of(self._folder) if other != blank]
            return Step(name, "failed", f"a blank is left at {blank}", tuple(others[:_BLANKS_SAID]), "blank")
        advice = [do] if do else []
        if "ModuleNotFoundError" in message:
            advice.append(f"pip install '{self._of.install}', and list under `requires` what the adapter imports")
        if place := place_of(message, self._session.log, self._folder):
            advice.append(f"it was {place}")
        return Step(name, "failed", message, tuple(advice), "adapter")


def _no_array(record: Record) -> bool:
    """Whether there is nothing whose numbers could be compared: no answer, or another shape or dtype."""
    problems = [tensor.problem.kind for tensor in record.tensors if tensor.problem]
    no_verdict = record.outcome == Outcome.FAIL and not record.tensors
    return record.outcome in _NO_ANSWER or no_verdict or any(kind in ("shape", "dtype") for kind in problems)


def _first(records: Iterator[Record]) -> Record | None:
    return next(records, None)
