"""Asks a file and its source the same, whatever layer it is, and measures σ on the source.

σ is what the source's own lower precision makes of the same inputs, and what the source makes in float64 of parameters
and inputs that are another by up to half a unit in the last place of the file's format.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import Outputs, WholeComparison, WholeVerdict, judged, paired
from encoder_conformance.commands.validate.whole_inputs import WholeCase, WholeInputs
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.messages import Call, Precision
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, dtype_named
from encoder_conformance.subjects.starting import new_session
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.session import Session

_DISTURBED = 8
"""Runs of the source with other last places."""
_LARGE = 64 << 20
"""Bytes of a file of which fewer cases and runs are asked."""


def compare_whole(
    source: tuple[SubjectRequest, Session | None],
    file: ExaminedFile,
    runs: Sequence[RuntimeRun],
    logs: Path,
    progress: Progress,
) -> WholeComparison:
    """The file against its source, in the session of that, at sizes, masks and ranges of values that it takes."""
    request, session = source
    description, model, limits = file.description, file.request.model, file.request.limits
    name = request.target if request.at is None else f"{request.target} at {request.at}"
    if session is None:
        return WholeComparison(name, not_compared=("a checkpoint does not run",))
    if (why := _unasked(description)) or description.whole is None:
        return WholeComparison(name, not_compared=(why,) if why else ())
    few = description.file is not None and description.file.bytes > _LARGE
    held = dtype_named(description.whole.held or "float32")
    called, inputs = _Source(request, session, held), WholeInputs.of(description)
    cases = inputs.cases(few=few)
    progress.begin(f"the whole file and {name}", len(cases) + 1)
    found = _Measure(called, few=few)
    if problem := found.unfit(cases[0]):
        return WholeComparison(name, not_compared=(problem,))
    progress.step("is it the same twice")
    expected = found.expected(cases, progress)
    files = list(_answers(runs, model, expected, logs, limits, progress))
    compared = _compared(name, expected, files, found.failed)
    return replace(compared, notes=tuple(_notes(called, found, inputs)))


def _notes(source: "_Source", measure: "_Measure", inputs: WholeInputs) -> Iterator[str]:
    """What was guessed of the inputs, and what the source is no measure for."""
    if source.given:
        said = ", ".join(f"{name!r} as {argument}" for name, argument in source.given.items())
        yield f"the source was given {said}, in order: their names are not the file's"
    if measure.widest != "float64":
        yield "the source computes in float32 alone, and is compared in that"
    for name in inputs.guessed:
        yield f"{name!r} indexes no constant table of the file, and was given 0 and 1 as a mask is"


def _unasked(description: FileDescription) -> str:
    """Why nothing can be compared."""
    whole = description.whole
    if whole is not None and whole.held == "int8":
        return "it computes with integers, whose rounding σ does not judge: see reduction"
    strange = [str(each) for each in whole.inputs if each.shape is None or each.dtype == "string"] if whole else []
    return f"no values are known for the input {strange[0]}" if strange else ""


class _Source:
    """The source that is called: a module, or another file."""

    def __init__(self, request: SubjectRequest, session: Session, held: DtypeName) -> None:
        self.request, self.session, self.held = request, session, held
        path = str((request.folder / request.target).absolute())
        named = {"arguments": dict(request.arguments), "folder": str(request.folder), "at": request.at}
        is_file = request.target.endswith(".onnx")
        self._named = {"target": path} if is_file else {"target": request.target, **named}
        self.given: dict[str, str] = {}

    def outputs(self, inputs: Outputs, precision: Precision, seed: int | None = None) -> Outputs | Failure:
        roundoff = FORMATS[self.held].roundoff
        asked = Call(**self._named, inputs=tuple(inputs), precision=precision, seed=seed, roundoff=roundoff)
        answer = self.session.call(asked, dict(inputs))
        if isinstance(answer, Failure):
            return answer
        called, tensors = answer
        self.given = {name: argument for name, argument in called.given.items() if name != argument}
        return {name: tensors[name] for name in called.outputs}


@dataclass(frozen=True)
class _Expected:
    """What the source answers in float64, and σ of each of its outputs."""

    case: WholeCase
    outputs: Outputs
    sigma: Mapping[str, float]


class _Measure:
    """What the source does, asked in float64, in the file's format, and disturbed.

    `widest`: float64; float32 where the source computes in no wider format, as a layer of Keras with its policy.
    """

    widest: Precision = "float64"

    def __init__(self, source: _Source, *, few: bool) -> None:
        self._source, self._seeds = source, range(2 if few else _DISTURBED)
        self.failed: list[str] = []

    def unfit(self, case: WholeCase) -> str:
        """Why its answers are no measure: it cannot be called so, or answers another thing each time."""
        one = self._source.outputs(case.inputs, "float64")
        if isinstance(one, Failure):
            refused = one.message.splitlines()[0]
            one, self.widest = self._source.outputs(case.inputs, "float32"), "float32"
            if isinstance(one, Failure):
                return f"{self._source.request.target} could not be called with the file's inputs: {refused}"
        two = self._source.outputs(case.inputs, self.widest)
        if isinstance(two, Failure):
            return f"{self._source.request.target} answers once, and not again: {two.message.splitlines()[0]}"
        if not one:
            return f"{self._source.request.target} returns no tensor"
        if any(not np.array_equal(one[name], two[name], equal_nan=True) for name in one):
            return f"{self._source.request.target} answers the same inputs otherwise the second time"
        return ""

    def expected(self, cases: Sequence[WholeCase], progress: Progress) -> list[_Expected]:
        """Of each case that it answers. Seeds go outside, for the worker keeps the last copy of a module alone."""
        right = {case.name: self._asked(case, self.widest) for case in cases}
        errors: dict[str, list[Outputs]] = {name: [] for name, answer in right.items() if answer is not None}
        kept = [case for case in cases if case.name in errors]
        for case in kept:
            narrow = self._source.outputs(case.inputs, self._source.held)
            if not isinstance(narrow, Failure):  # some operators have no kernel in a narrow format
                errors[case.name].append(narrow)
        for seed in self._seeds:
            for case in kept:
                disturbed = self._source.outputs(self._noisy(case, seed), self.widest, seed)
                if not isinstance(disturbed, Failure):
                    errors[case.name].append(disturbed)
                if seed == self._seeds[-1]:
                    progress.step(case.name)
        return [self._measured(case, right[case.name] or {}, errors[case.name]) for case in kept]

    def _noisy(self, case: WholeCase, seed: int) -> Outputs:
        """The inputs, the values among them another by up to half a unit in the last place of the file's format."""
        rng, roundoff = np.random.default_rng(seed), FORMATS[self._source.held].roundoff
        wide = {name: case.inputs[name].astype(np.float64) for name in case.values}
        noisy = {name: value * (1.0 + roundoff * rng.uniform(-1.0, 1.0, value.shape)) for name, value in wide.items()}
        return {**case.inputs, **noisy}

    def _asked(self, case: WholeCase, precision: Precision) -> Outputs | None:
        answer = self._source.outputs(case.inputs, precision)
        if isinstance(answer, Failure):
            self.failed.append(f"{case.name}: the source raises {answer.message.splitlines()[0]}")
            return None
        return answer

    def _measured(self, case: WholeCase, right: Outputs, others: Sequence[Outputs]) -> _Expected:
        roundoff = FORMATS[self._source.held].roundoff
        sigma = {
            name: _sigma(value, [each[name] for each in others if name in each], roundoff)
            for name, value in right.items()
        }
        return _Expected(case, right, sigma)


def _sigma(right: Array, others: Sequence[Array], roundoff: float) -> float:
    """The root of the mean square by which others differ, where all are finite; no less than one rounding of the
    output, which every file makes."""
    wide = right.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = [np.square(other.astype(np.float64) - wide) for other in others if other.shape == right.shape]
    finite = np.isfinite(wide)
    squares = [each[np.isfinite(each) & finite] for each in apart]
    pooled = float(np.mean(np.concatenate(squares))) if squares and any(each.size for each in squares) else 0.0
    least = np.mean(np.square(wide[finite])) * roundoff**2 / 3 if finite.any() else 0.0
    return float(np.sqrt(max(pooled, float(least))))


def _answers(
    runs: Sequence[RuntimeRun],
    model: Path,
    expected: Sequence[_Expected],
    logs: Path,
    limits: WorkerLimits,
    progress: Progress,
) -> Iterator[tuple[RuntimeRun, dict[str, Outputs | Failure]]]:
    """Each run, and case → the file's outputs, or why there are none. A run keeps its worker for what comes next."""
    ready = [run for run in runs if isinstance(run.found, Ready) and not run.as_numbers]
    progress.begin("the whole file", len(ready))
    for run in ready:
        assert isinstance(run.found, Ready)
        if run.session is None:
            log = logs / f"{run.name.replace(' ', '-').replace(',', '')}.log"
            run.session = new_session(run.found, log, limits=limits)
        yield run, {each.case.name: _called(run.session, model, each.case.inputs) for each in expected}
        progress.step(run.name)


def _called(session: Session, model: Path, inputs: Outputs) -> Outputs | Failure:
    answer = session.call(Call(target=str(model.absolute()), inputs=tuple(inputs)), dict(inputs))
    if isinstance(answer, Failure):
        return answer
    called, tensors = answer
    return {name: tensors[name] for name in called.outputs}


def _compared(
    source: str,
    expected: Sequence[_Expected],
    files: Sequence[tuple[RuntimeRun, Mapping[str, Outputs | Failure]]],
    failed: Sequence[str],
) -> WholeComparison:
    if not expected:
        return WholeComparison(source, not_compared=tuple(failed) or ("the source answers nothing",))
    shown = next((each for _, run in files for each in run.values() if not isinstance(each, Failure)), None)
    if shown is None:
        return WholeComparison(source, not_compared=("no runtime runs the file",))
    first = expected[0]
    pairs, unpaired = paired(shown, first.outputs)
    verdicts, better = list[WholeVerdict](), list[str]()
    for run, answers in files:
        if all(isinstance(each, Failure) for each in answers.values()):
            continue  # a runtime that does not run the file is said in phase `loads`
        for each in expected:
            answer = answers[each.case.name]
            if isinstance(answer, Failure):
                problem = f"it raises {answer.message.splitlines()[0]}"
                verdicts.append(WholeVerdict(run, each.case.name, "", problem=problem))
                continue
            for name, theirs in pairs.items():
                rms, problem, has_more = judged(answer[name], each.outputs[theirs], each.sigma[theirs])
                verdicts.append(WholeVerdict(run, each.case.name, name, rms, problem))
                better += [each.case.name] if has_more else []
    said = [*failed, *(f"the output {name!r} has no counterpart in the source" for name in unpaired)]
    cases = [each.case for each in expected]
    return WholeComparison(source, cases, verdicts, pairs, said, list(dict.fromkeys(better)))
