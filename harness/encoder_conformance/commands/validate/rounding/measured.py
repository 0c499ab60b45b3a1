"""Measures how far a file of integers is off, from what it was made from or from the numbers that they stand for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from encoder_conformance.blackbox.comparing import Outputs, paired
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import Measure, Source
from encoder_conformance.commands.validate.against_whole import answers_of, is_large, unaskable
from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.rounding.ranking import Variants, ranking
from encoder_conformance.commands.validate.rounding.relations import changed
from encoder_conformance.commands.validate.rounding.results import RoundedCase, Rounding
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.judging.relative import largest_error
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.quantised import STANDS_FOR
from encoder_conformance.spec.axes import Array
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_TIMES_FLOAT = 4
"""So many times as large is the same file in float32."""
_NOT_RANKED = "its operators of integers were not left in float one by one, for each makes a file of this size"
_LOOKED_AT = 2
"""Cases of which every activation is looked at."""


@dataclass(frozen=True)
class MadeFrom:
    """What a file of integers was made from. It is called in `session`; None: its outputs were `saved`, or it computes
    nothing. `tensors`: its own, as far as they are known."""

    request: SubjectRequest
    session: Session | None = None
    tensors: Mapping[str, Array] = field(default_factory=dict)
    saved: tuple[WholeCase, Outputs] | None = None

    @property
    def name(self) -> str:
        return self.request.target if self.request.at is None else f"{self.request.target} at {self.request.at}"


class RoundingComparison:
    """A file of integers, its runs, and what its outputs are compared with."""

    def __init__(
        self, file: ExaminedFile, runs: Sequence[RuntimeRun], made_from: MadeFrom | None, progress: Progress
    ) -> None:
        self.file, self.runs, self.made_from, self.progress = file, runs, made_from, progress
        looked = next(run for run in runs if run.session is not None)
        assert looked.session is not None
        self.session = looked.session
        own = SubjectRequest(str(file.request.model.absolute()))
        self._real = Source(own, self.session, "float32")
        self._source = self._real
        if made_from is not None and made_from.session is not None:
            self._source = Source(made_from.request, made_from.session, "float32")
        self.few = is_large(file.description, _TIMES_FLOAT)

    @property
    def saved(self) -> tuple[WholeCase, Outputs] | None:
        return self.made_from.saved if self.made_from is not None else None

    @property
    def source_tensors(self) -> tuple[str | None, dict[str, Array]]:
        """The file that it was made from, or the tensors of another source."""
        if self.made_from is None:
            return None, {}
        request = self.made_from.request
        is_file = request.target.endswith(".onnx")
        path = str((request.folder / request.target).absolute()) if is_file else None
        return path, {} if is_file else dict(self.made_from.tensors)

    def unfit(self, case: WholeCase) -> str:
        """Why the reference is none; "" where it is."""
        if self.saved is not None:
            return ""
        measure = Measure(self._source, few=True)
        problem = measure.unfit(case)
        self._widest = measure.widest
        return problem.message if problem else ""

    def right(self, case: WholeCase) -> Outputs | Failure:
        """The outputs of the reference."""
        if self.saved is not None:
            return self.saved[1]
        return self._source.outputs(case.inputs, self._widest)

    def real(self, case: WholeCase) -> Outputs | None:
        """The outputs of the numbers that the integers stand for, where those are not the reference."""
        if self.made_from is None:
            return None
        found = self._real.outputs(case.inputs, "float64")
        return None if isinstance(found, Failure) else found


@dataclass(frozen=True)
class MeasuredRounding:
    """What the integers of a file cost; or why that was not measured, "" where nothing needs to be."""

    rounding: Rounding | None
    why_not: str = ""


NOT_OF_INTEGERS = MeasuredRounding(None)


def rounding_of(
    file: ExaminedFile,
    runs: Sequence[RuntimeRun],
    made_from: MadeFrom | None,
    own: Sequence[WholeCase],
    logs: Path,
    progress: Progress,
) -> MeasuredRounding:
    """Of parameters, stated or of a checkpoint, which compute nothing, the oracle tells instead, where the layer is
    known."""
    is_checkpoint = made_from is not None and made_from.session is None and made_from.saved is None
    is_stated = made_from is None and bool(file.request.parameters) and file.is_understood and not own
    if not file.integers or is_checkpoint or is_stated:
        return NOT_OF_INTEGERS
    why = unaskable(file.description)
    if file.description.whole is None or why:
        return MeasuredRounding(None, why)
    found = measure_rounding(RoundingComparison(file, runs, made_from, progress), own, logs, file.request.limit)
    return MeasuredRounding(None, found) if isinstance(found, str) else MeasuredRounding(found)


def measure_rounding(
    compared: RoundingComparison, own: Sequence[WholeCase], logs: Path, limit: float | None
) -> Rounding | str:
    """How far the file is off; why that was not measured. `own`: the user's inputs, which are then what is judged."""
    file, inputs = compared.file, WholeInputs.of(compared.file.description)
    cases = [compared.saved[0]] if compared.saved is not None else [*own, *inputs.cases(few=compared.few)]
    name = compared.made_from.name if compared.made_from else STANDS_FOR
    compared.progress.begin(f"{file.request.model.name} and {name}", len(cases) + 1)
    if problem := compared.unfit(cases[0]):
        return problem
    compared.progress.step("is it the same twice")
    right, not_asked = dict[str, Outputs](), list[str]()
    for case in cases:
        found = compared.right(case)
        if isinstance(found, Failure):
            not_asked.append(f"{case.name}: {name} raises {found.message.splitlines()[0]}")
        else:
            right[case.name] = found
        compared.progress.step(case.name)
    asked = [case for case in cases if case.name in right]
    answers = {run.name: found for run, found in answers_of(compared.runs, file, asked, logs, compared.progress)}
    given = next((each for found in answers.values() for each in found.values() if not isinstance(each, Failure)), None)
    if given is None or not asked:
        return "; ".join(not_asked) or "no runtime runs the file"
    pairs, unpaired = paired(given, right[asked[0].name])
    due = {case.name: {mine: right[case.name][theirs] for mine, theirs in pairs.items()} for case in asked}
    if not pairs:
        return f"no output of the file has the shape of one of {name}"
    rounded = tuple(_rounded(case, due[case.name], answers, compared) for case in asked)
    measured = Rounding(
        reference=name,
        made_from=compared.made_from is not None,
        cases=rounded,
        not_asked=(*not_asked, *(f"the output {each!r} has no counterpart in {name}" for each in unpaired)),
    )
    if not measured.judged:
        return f"no inputs of an ordinary size were answered: {'; '.join(not_asked)}"
    return _looked_into(measured, compared, asked, due, inputs, limit)


def _rounded(
    case: WholeCase, due: Outputs, answers: Mapping[str, Mapping[str, Outputs | Failure]], compared: RoundingComparison
) -> RoundedCase:
    errors = {run: _error(found[case.name], due) for run, found in answers.items() if _ever_ran(found)}
    real = compared.real(case)
    if real is None:
        return RoundedCase(name=case.name, kind=case.kind, errors=errors)
    given = next((found[case.name] for found in answers.values() if not isinstance(found[case.name], Failure)), None)
    weights = _error({name: real[name] for name in due if name in real}, due)
    activations = (
        None if given is None or isinstance(given, Failure) else _error(given, {name: real[name] for name in due})
    )
    return RoundedCase(name=case.name, kind=case.kind, errors=errors, weights=weights, activations=activations)


def _ever_ran(found: Mapping[str, Outputs | Failure]) -> bool:
    """A runtime that does not run the file is said in phase `loads`."""
    return any(not isinstance(each, Failure) for each in found.values())


def _error(found: Outputs | Failure, due: Outputs) -> float | None:
    if isinstance(found, Failure) or not due.keys() <= found.keys():
        return None
    error = largest_error(found, due)
    return None if math.isnan(error) else error


def _looked_into(
    found: Rounding,
    compared: RoundingComparison,
    cases: Sequence[WholeCase],
    due: Mapping[str, Outputs],
    inputs: WholeInputs,
    limit: float | None,
) -> Rounding:
    """With what its scales lose, what changes it that should not, and what is better left in float."""
    by_name = {case.name: case for case in cases}
    worst = sorted(
        found.judged, key=lambda each: -max((error or math.inf for error in each.errors.values()), default=0.0)
    )
    chosen = [by_name[each.name] for each in [*_of_each_kind(worst)][: 2 if compared.few else 4]]
    variants = Variants(compared.session, compared.file.request.model, compared.source_tensors, compared.few)
    looked = variants.look(_plain([by_name[each.name] for each in found.judged]))
    if isinstance(looked, Failure):
        why = f"what its integers do was not looked into: {looked.message.splitlines()[0]}"
        return found.model_copy(update={"not_asked": (*found.not_asked, why)})
    related, changes = changed(compared.session, compared.file.request.model, inputs, cases, found)
    seen = found.model_copy(update={"away": looked.away, "related": related, "changed": changes})
    if compared.few and limit is None:
        return seen.model_copy(update={"not_ranked": _NOT_RANKED})
    ranked = ranking(variants, looked.places, [(case, due[case.name]) for case in chosen], limit, compared.progress)
    return seen.model_copy(update={"ranking": ranked})


def _plain(cases: Sequence[WholeCase]) -> list[WholeCase]:
    """The longest in which nothing is hidden: what scales lose there is what they lose of ordinary inputs. A file that
    ran in padded ones alone is looked at in those."""
    plain = [case for case in cases if case.kind != "padded"] or cases
    return sorted(plain, key=lambda case: -case.sequence)[:_LOOKED_AT]


def _of_each_kind(worst: Sequence[RoundedCase]) -> Iterator[RoundedCase]:
    """The worst of each kind, then the next of each."""
    by_kind: dict[str, list[RoundedCase]] = {}
    for each in worst:
        by_kind.setdefault(each.kind, []).append(each)
    for place in range(len(worst)):
        yield from (found[place] for found in by_kind.values() if place < len(found))
