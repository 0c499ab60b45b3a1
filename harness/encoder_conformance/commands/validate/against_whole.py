"""Asks a file and its source the same, whatever layer it is, and measures σ on the source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

from encoder_conformance.blackbox.comparing import (
    LIMIT,
    Outputs,
    judged,
    kind_of_problem,
    paired,
    size_of,
    tells_nothing,
    undefined_apart,
    undefined_differ,
)
from encoder_conformance.blackbox.hiding import as_causal
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, RaisedCase, Source
from encoder_conformance.blackbox.order_of_inputs import settle_order
from encoder_conformance.blackbox.sizes_taken import at_sizes_taken
from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.weights import sampled_runs
from encoder_conformance.commands.validate.where_apart import first_step_apart, mask_missing, masks_apart, opened_file
from encoder_conformance.commands.validate.whole import WholeComparison, WholeVerdict
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.protocol.messages import Call
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import dtype_named
from encoder_conformance.subjects.starting import new_session
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

LARGE = 64 << 20
"""Bytes of a file of which fewer cases and runs are asked."""
_OF_AN_ITEM = 4096
"""Numbers of an item that a file may fix and not count for more than its bytes."""


def compare_whole(
    source: tuple[SubjectRequest, Session | None],
    file: ExaminedFile,
    runs: Sequence[RuntimeRun],
    logs: Path,
    progress: Progress,
    own: Sequence[WholeCase] = (),
) -> WholeComparison:
    """The file against its source, in the session of that, at sizes, masks and ranges of values that it takes, and on
    the user's own inputs."""
    (request, session), description = source, file.description
    name = request.target if request.at is None else f"{request.target} at {request.at}"
    if session is None:
        return WholeComparison(name, not_compared=(noted("source-does-not-run", "a checkpoint does not run"),))
    if (why := unaskable(description)) or description.whole is None:
        return WholeComparison(name, not_compared=(noted("not-askable", why),) if why else ())
    few, integers = is_large(description), unasked(description)
    held = "float32" if integers else dtype_named(description.whole.held or "float32")
    called = Source(request, session, held)
    inputs = at_sizes_taken(called, WholeInputs.of(description))
    cases, found = _cases(file, inputs, few=few), Measure(called, few=few)
    progress.begin(f"the whole file and {name}", len(cases) + len(own) + 2)
    if problem := _unfit(found, cases[0], integers) or _unsettled(found, called, file, runs, cases):
        return WholeComparison(name, not_compared=(problem,))
    cases = as_causal(called, inputs, [*cases, *_taken(found, inputs, cases, few=few), *own], found.widest)
    progress.step("is it the same twice")
    expected = found.expected(cases, progress)
    if found.changed:
        return WholeComparison(name, not_compared=(found.changed,))
    asked = [each.case for each in expected]
    first = sampled_runs(runs) if few and not file.request.runtimes else runs
    files = list(answers_of(first, file, asked, logs, progress))
    answered = compared(name, expected, files, found.failed)
    if (left := [run for run in runs if run not in first]) and (answered.apart or not answered.verdicts):
        files += answers_of(left, file, asked, logs, progress)  # is it the file, or a runtime?
        answered, left = compared(name, expected, files, found.failed), []
    masks = masks_apart(answered, called, file, runs, inputs)
    notes = (*answered.notes, *_notes(answered, called, found, inputs), *_left_out(left), *masks)
    first_apart = first_step_apart(answered, called, file, runs, inputs, few=few)
    return replace(answered, notes=notes, first_apart=first_apart)


def _unfit(measure: Measure, case: WholeCase, integers: str) -> Finding | None:
    """Why nothing is measured here. `integers`: why that is of a file of integers; it is measured elsewhere, and beside
    a source that has one answer."""
    problem = measure.unfit(case)
    if integers and (problem is None or problem.kind != "source-not-repeatable"):
        return noted("not-askable", integers)
    return problem


def _unsettled(
    measure: Measure, source: Source, file: ExaminedFile, runs: Sequence[RuntimeRun], cases: Sequence[WholeCase]
) -> Finding | None:
    """Has the source given what it is asked as which it comes nearest to the file; why it is no measure so."""
    if (own := opened_file(source, file, runs)) is not None:
        settle_order(source, own, cases, measure.widest)
    return measure.unfit(cases[0]) if source.order else None


def _taken(measure: Measure, inputs: WholeInputs, cases: Sequence[WholeCase], *, few: bool) -> list[WholeCase]:
    """A long case, one of uneven lengths, and one of the ids that are not asked yet: of each the first that the source
    takes."""
    more = [*measure.first_taken(inputs.long_cases(few=few)), *measure.first_taken(inputs.uneven_cases())]
    return [*more, *([] if few else measure.first_taken(inputs.row_cases([*cases, *more])))]


def _cases(file: ExaminedFile, inputs: WholeInputs, *, few: bool) -> list[WholeCase]:
    """At the sizes that it runs at, and far from zero; and, of a file that no other phase judges, or of which a part
    alone was seen to run at no others, at some that it declares free."""
    far = inputs.far_case()
    cases = [*inputs.cases(few=few), *([far] if far else [])]
    if not inputs.baked or (file.is_understood and file.description.cut is None):
        return cases
    free, known = replace(inputs, baked={}).cases(few=True), {each.name for each in cases}
    return [*cases, *(each for each in free if each.name not in known and each.kind == "ordinary")]


def _left_out(left: Sequence[RuntimeRun]) -> Iterator[Finding]:
    """The runs that a large file was not asked in."""
    if names := [run.name for run in left if isinstance(run.found, Ready)]:
        message = f"the file is large, and was not asked in {', '.join(names)}: --runtime names those to ask"
        yield noted("sampled", message, runs=names)


def is_large(description: FileDescription, times: int = 1) -> bool:
    """Whether fewer cases are asked, where a file takes `times` its bytes: of many weights, or of few for many
    positions, as of images or frames whose size it fixes."""
    if description.file is None:
        return False
    inputs = description.whole.inputs if description.whole else ()
    fixed = (prod(size for size in (each.shape or ())[1:] if isinstance(size, int)) for each in inputs)
    size = description.file.bytes + description.file.beside
    return size * times * max(1.0, max(fixed, default=1) / _OF_AN_ITEM) > LARGE


def _notes(whole: WholeComparison, source: Source, measure: Measure, inputs: WholeInputs) -> Iterator[Finding]:
    """What was guessed of the inputs, what the source is no measure for, and what was not asked of either."""
    if said := source.how_given:
        about = {"given": source.given, "in_order": source.in_order}
        yield noted("inputs-given-by-order", f"the source was given {said}", **about)
    if measure.widest != "float64":
        yield noted("no-float64", "the source was compared in float32: it has no float64, or no numbers in it")
    for name, count, rows in inputs.rows_asked(whole.cases):
        message = f"{count} of the {rows} rows that {name!r} indexes were asked; the others may hold anything"
        yield noted("sampled", message, input=name, asked=count, rows=rows)
    for count, rows in inputs.places_asked(whole.cases):
        message = (
            f"{count} of the {rows} rows of a table that no input indexes were asked; the others may hold anything"
        )
        yield noted("sampled", message, asked=count, rows=rows)
    yield from mask_missing(whole.source, source, inputs, measure.widest)
    for name in inputs.roles.guessed:
        message = f"{name!r} indexes no constant table of the file, and was given 0 and 1 as a mask is"
        yield noted("input-guessed", message, input=name)


def unasked(description: FileDescription) -> str:
    """Why nothing can be compared."""
    whole = description.whole
    if whole is not None and whole.held == "int8":
        return "it computes with integers, whose rounding σ does not judge: see reduction"
    return unaskable(description)


def unaskable(description: FileDescription) -> str:
    """Why no inputs of it are known; "" where they are."""
    whole = description.whole
    strange = [str(each) for each in whole.inputs if each.shape is None or each.dtype == "string"] if whole else []
    return f"no values are known for the input {strange[0]}" if strange else ""


def answers_of(
    runs: Sequence[RuntimeRun], file: ExaminedFile, cases: Sequence[WholeCase], logs: Path, progress: Progress
) -> Iterator[tuple[RuntimeRun, dict[str, Outputs | Failure]]]:
    """Each run, and case → the file's outputs, or why there are none. A run keeps its worker for what comes next; of a
    large file the one that has looked into it alone, for each holds all weights."""
    ready = [run for run in runs if isinstance(run.found, Ready) and not run.as_numbers]
    progress.begin("the whole file", len(ready))
    large = is_large(file.description)
    for run in ready:
        assert isinstance(run.found, Ready)
        log = logs / f"{run.name.replace(' ', '-').replace(',', '')}.log"
        session = run.session or new_session(run.found, log, limits=file.request.limits)
        kept = run.session is not None or not large
        run.session = session if kept else None
        answers = {}
        for number, case in enumerate(cases, 1):
            again = number < len(cases) or not large
            answers[case.name] = _called(session, file.request.model, case.inputs, kept=again)
        if not kept:
            session.close()
        yield run, answers
        progress.step(run.name)


def _called(session: Session, model: Path, inputs: Outputs, *, kept: bool) -> Outputs | Failure:
    answer = session.call(Call(target=str(model.absolute()), inputs=tuple(inputs), kept=kept), dict(inputs))
    if isinstance(answer, Failure):
        return answer
    called, tensors = answer
    return {name: tensors[name] for name in called.outputs}


def _raised(failed: Sequence[RaisedCase]) -> tuple[Finding, ...]:
    """What the source raises, once for all cases that it raises the same in."""
    cases: dict[str, list[str]] = {}
    for each in failed:
        cases.setdefault(each.raised, []).append(each.case)
    return tuple(
        noted("source-raises", f"{'; '.join(names)}: the source raises {raised}", cases=names)
        for raised, names in cases.items()
    )


def compared(
    source: str,
    expected: Sequence[ExpectedOutputs],
    files: Sequence[tuple[RuntimeRun, Mapping[str, Outputs | Failure]]],
    failed: Sequence[RaisedCase],
) -> WholeComparison:
    """Each output of each run beside what is expected. `failed`: cases in which nothing is, and why."""
    if not expected:
        nothing = noted("source-answers-nothing", "the source answers nothing")
        return WholeComparison(source, not_compared=_raised(failed) or (nothing,))
    shown = next((each for _, run in files for each in run.values() if not isinstance(each, Failure)), None)
    if shown is None:
        return WholeComparison(source, not_compared=(noted("runtime-does-not-run", "no runtime runs the file"),))
    first = expected[0]
    pairs, unpaired = paired(shown, first.outputs)
    verdicts, better, undefined = list[WholeVerdict](), list[str](), dict[str, Finding]()
    without: dict[str, list[str]] = {}
    largest = {name: max(size_of(each.outputs[name]) for each in expected) for name in pairs.values()}
    for run, answers in filter(_runs, files):
        for each in expected:
            answer = answers[each.case.name]
            if isinstance(answer, Failure):
                problem = f"it raises {answer.message.splitlines()[0]}"
                verdicts.append(WholeVerdict(run, each.case.name, "", problem=problem))
                continue
            for name, theirs in pairs.items():
                compared = answer[name], each.outputs[theirs], each.sigma[theirs], each.case.undefined
                rms, problem, has_more = judged(*compared)
                if why := _tells_nothing(problem, *compared[:3], largest[theirs]):
                    without.setdefault(f"{name!r}: {why}", []).append(each.case.name)
                    continue
                if (far := undefined_apart(*compared)) > LIMIT:
                    undefined[each.case.name] = undefined_differ(each.case, name, far)
                verdicts.append(WholeVerdict(run, each.case.name, name, rms, problem))
                better += [each.case.name] if has_more else []
    said = [*_raised(failed), *_lone(unpaired, shown, first.outputs), *undefined.values(), *_nothing(without)]
    cases, notes = [each.case for each in expected], tuple(_left_over(pairs, first.outputs))
    found = WholeComparison(source, cases, verdicts, pairs, said, list(dict.fromkeys(better)), notes)
    found = replace(found, failures=[*_failures(each for each in files if not _runs(each))])
    return replace(found, exchanged=dict(_exchanged(found, expected, files)))


def _failures(
    files: Iterable[tuple[RuntimeRun, Mapping[str, Outputs | Failure]]],
) -> Iterator[tuple[RuntimeRun, str]]:
    for run, answers in files:
        first = next((each for each in answers.values() if isinstance(each, Failure)), None)
        if first is not None:
            yield run, first.message.splitlines()[0]


def _runs(answered: tuple[RuntimeRun, Mapping[str, Outputs | Failure]]) -> bool:
    """Whether a runtime runs the file at all: that it does not is said in phase `loads`."""
    return not all(isinstance(each, Failure) for each in answered[1].values())


def _tells_nothing(problem: str, found: Array, right: Array, sigma: float, largest: float) -> str:
    """Why an output [*shape] of a case says nothing of the file; "" where it does."""
    if problem:
        return problem if kind_of_problem(found, right) == "not-compared" else ""
    said = "nothing to compare: in the file's format the source's own rounding is as large as its numbers"
    return said if tells_nothing(right, sigma, largest) else ""


def _exchanged(
    found: WholeComparison,
    expected: Sequence[ExpectedOutputs],
    files: Sequence[tuple[RuntimeRun, Mapping[str, Outputs | Failure]]],
) -> Iterator[tuple[str, str]]:
    """An output of the file that is nowhere the source's it is compared with → the one that it is everywhere."""
    right = {each.output for each in found.verdicts if each.agrees}
    answers = next((each for _, each in files if not any(isinstance(one, Failure) for one in each.values())), {})
    for name in (name for name in found.outputs if name not in right and answers):
        for other in expected[0].outputs:
            if other != found.outputs[name] and all(
                _is(answers[each.case.name], name, each, other) for each in expected
            ):
                yield name, other
                break


def _is(answer: Outputs | Failure, name: str, each: ExpectedOutputs, other: str) -> bool:
    """Whether an output of a file is this one of the source's in a case."""
    if isinstance(answer, Failure) or other not in each.outputs:
        return False
    rms, problem, _ = judged(answer[name], each.outputs[other], each.sigma[other], each.case.undefined)
    return not problem and rms is not None and rms <= LIMIT


def _lone(unpaired: Sequence[str], file: Outputs, source: Outputs) -> Iterator[Finding]:
    """The file's outputs that are compared with nothing."""
    there = ", ".join(f"{name!r} {list(value.shape)}" for name, value in source.items())
    for name in unpaired:
        what = f"the output {name!r} {list(file[name].shape)} has no counterpart in the source, which gives {there}"
        yield noted("output-unpaired", what, output=name)


def _left_over(pairs: Mapping[str, str], source: Outputs) -> Iterator[Finding]:
    """The source's outputs that are no output of the file: a file may leave some out."""
    for name in (name for name in source if name not in pairs.values()):
        message = f"the source gives {name!r} {list(source[name].shape)} too, which is no output of the file"
        yield noted("output-unpaired", message, output=name, side="source")


def _nothing(cases: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Outputs of which there was nothing to compare, and in which cases."""
    for what, names in cases.items():
        unique = list(dict.fromkeys(names))
        yield noted("not-compared", f"{what} in {'; '.join(unique)}", cases=unique)
