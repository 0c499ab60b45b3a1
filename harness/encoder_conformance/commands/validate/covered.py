"""For what a file holds: other batch sizes, lengths, runtimes and levels, and padding; or why that was not asked."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from encoder_conformance.commands.validate.evidence import Answers, ValidationEvidence
from encoder_conformance.commands.validate.results import Covered, Question
from encoder_conformance.commands.validate.runtimes import RUNTIMES, RuntimeRun
from encoder_conformance.commands.validate.unasked import no_padding
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.implementation.interpreter import Missing
from encoder_conformance.protocol.description import FileDescription, Size
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.situation import Situation

_OF_PADDING = ("padding_content", "padding_length")
Names = Sequence[int | str]
"""Sizes, situations, runtimes or levels."""
Held = list[tuple[Situation, bool]]
"""Situations that were asked, and whether every runtime is in line there."""


def covered(evidence: ValidationEvidence) -> tuple[Covered, ...]:
    if evidence.answers is not None:
        return tuple(_covered(evidence, evidence.answers))
    return tuple(_covered_by(evidence.whole)) if evidence.whole is not None and evidence.whole.verdicts else ()


def _covered_by(whole: WholeComparison) -> Iterator[Covered]:
    """What was asked of the whole file, against its source alone."""
    apart = {each.case for each in whole.apart}
    plain = [case for case in whole.cases if not case.is_padded]
    sizes: tuple[tuple[Question, str], ...] = (("other batch sizes", "batch"), ("other lengths", "sequence"))
    for question, axis in sizes:
        asked = sorted({getattr(case, axis) for case in plain})
        right = {getattr(case, axis) for case in plain if case.name not in apart}
        yield _asked(question, asked, [size for size in asked if size not in right])
    padded = [case.name for case in whole.cases if case.is_padded]
    yield _cannot_be_padded(whole) or _asked("padding", padded, [name for name in padded if name in apart], least=1)
    wrong = {each.run.runtime for each in whole.apart}
    runtimes = list(dict.fromkeys(each.run.runtime for each in whole.verdicts))
    yield _asked("other runtimes", runtimes, [name for name in runtimes if name in wrong])
    off = {each.run.name for each in whole.apart}
    levels = list(dict.fromkeys(each.run.name for each in whole.verdicts if each.run.level))
    yield _asked("other levels", levels, [name for name in levels if name in off])


def _cannot_be_padded(whole: WholeComparison | None) -> Covered | None:
    """That it takes no mask, and its source does; None: it is not so."""
    if whole is None or whole.mask_missing is None:
        return None
    masks = " and ".join(whole.mask_missing.about["masks"])
    said = f"it takes no mask, and {whole.source} hides positions by {masks}"
    return Covered(question="padding", answer="no", said=said)


def _asked(question: Question, asked: Names, wrong: Names, least: int = 2) -> Covered:
    """`least`: how many have to be asked for an answer."""
    if len(asked) < least:
        said = f"{asked[0]} alone was" if asked else "none was"
        return Covered(question=question, answer="not asked", said=said, asked=tuple(asked))
    said = f"wrong at {_listed(wrong)}; asked: {_listed(asked)}" if wrong else _listed(asked)
    return _answered(question, said, asked, wrong)


def _answered(question: Question, said: str, asked: Names, wrong: Names) -> Covered:
    answer: Literal["yes", "no"] = "no" if wrong else "yes"
    return Covered(question=question, answer=answer, said=said, asked=tuple(asked), wrong=tuple(wrong))


def _covered(evidence: ValidationEvidence, answers: Answers) -> Iterator[Covered]:
    plain = [case for case in answers.cases["numbers"] if case.situation.situation == "no-mask"]
    sized = _held(answers, [*answers.cases["shapes"], *plain])
    yield _sizes("other batch sizes", sized, "batch", evidence.description)
    yield _sizes("other lengths", sized, "sequence", evidence.description)
    properties = [case for case in answers.cases["properties"] if case.situation.invariant in _OF_PADDING]
    padded = [case for case in (*answers.cases["masks"], *properties) if case.situation.mask.padding]
    yield _padding(_held(answers, padded), evidence)
    right = _right_runs(evidence, answers)
    lacking = {run.name for run in answers.of_the_file if run.lacks_operators_of(evidence.description)}
    yield _runtimes(answers, right, lacking)
    yield _levels(answers, right)


def _held(answers: Answers, cases: Iterable[Case]) -> Held:
    """Those of the cases that a run was asked whose numbers σ judges."""
    runs = [run for run in answers.in_sigma if run.is_working]
    found = []
    for case in cases:
        outcomes = {record.outcome for run in runs for record in run.records if record.case == case.id}
        if outcomes - {Outcome.UNSUPPORTED}:
            found.append((case.situation, outcomes <= EXPECTED))
    return found


def _sizes(question: Question, held: Held, axis: Size, description: FileDescription) -> Covered:
    """A size is wrong where no situation of it is right: another may be wrong of its mate."""
    if baked := description.baked.get(axis):
        return Covered(question=question, answer="no", said=f"it runs at {axis} {baked} alone", asked=(baked,))
    sizes = [getattr(situation, axis) for situation, _ in held]
    known = sorted(set(sizes))
    if len(known) < 2:
        size = dict(zip(("batch", "sequence"), description.sizes(), strict=True))[axis]
        fixed = f"{axis} at {size}" if size else ""
        alone = f"{known[0]} alone was" if known else "none was"
        return Covered(
            question=question,
            answer="not asked",
            said=f"the file fixes the {fixed}" if fixed else alone,
            asked=tuple(known),
        )
    right = {size for size, (_, holds) in zip(sizes, held, strict=True) if holds}
    wrong: Names = [size for size in known if size not in right]
    wrong = wrong or [situation.situation for situation, holds in held if not holds]
    said = f"wrong at {_listed(wrong)}; asked: {_listed(known)}" if wrong else _listed(known)
    return _answered(question, said, known, wrong)


def _padding(held: Held, evidence: ValidationEvidence) -> Covered:
    if not held:
        unasked = Covered(question="padding", answer="not asked", said=no_padding(evidence))
        return _cannot_be_padded(evidence.whole) or unasked
    wrong = [situation.situation for situation, holds in held if not holds]
    asked = [situation.situation for situation, _ in held]
    return _answered("padding", f"wrong at {_listed(wrong)}" if wrong else _listed(asked), asked, wrong)


def _right_runs(evidence: ValidationEvidence, answers: Answers) -> dict[str, bool] | str:
    """Run → whether it is right, of those that were asked; why that is not known, of a file with integers that no limit
    was given for."""
    asked = [run for run in answers.of_the_file if run.answers]
    if not evidence.subject.integers:
        return {run.name: run.is_working and run.conforms for run in asked}
    limit = evidence.subject.request.limit
    if limit is None:
        return "no limit holds the rounding of its integers (--limit)"
    errors = evidence.rounding.errors() if evidence.rounding is not None else {}
    within = {name for name, (error, _) in errors.items() if error <= limit}
    return {run.name: run.is_working and run.name in within for run in asked}


def _why_left_out(runtime: str, absent: Collection[str], lacking: Collection[str]) -> str:
    if runtime in absent:
        return "is not here"
    return "has not all of its operators" if any(name.split()[0] == runtime for name in lacking) else "was left out"


def _runtimes(answers: Answers, right: Mapping[str, bool] | str, lacking: Collection[str]) -> Covered:
    """`lacking`: the runs that have not all of the file's operators."""
    asked: dict[str, list[str]] = defaultdict(list)
    for run in answers.of_the_file:
        if run.answers and run.name not in lacking:
            asked[run.runtime].append(run.name)
    absent = {run.runtime for run in answers.runs if isinstance(run.found, Missing)}
    others = dict.fromkeys(runtime for runtime, _ in RUNTIMES if runtime not in asked)
    rest = [f"{name} {_why_left_out(name, absent, lacking)}" for name in others]
    return _places("other runtimes", asked, right, rest)


def _levels(answers: Answers, right: Mapping[str, bool] | str) -> Covered:
    runs = [run for run in answers.of_the_file if run.answers and run.level]
    return _places("other levels", {run.name: [run.name] for run in runs}, right, _other_levels(runs))


def _other_levels(asked: Iterable[RuntimeRun]) -> list[str]:
    """That levels of a runtime were not asked, which was asked at another."""
    known = {(run.runtime, run.level) for run in asked}
    runtimes = {runtime for runtime, _ in known}
    others = [" ".join(each) for each in RUNTIMES if each[0] in runtimes and each not in known]
    return [f"{_listed(others)} {'was' if len(others) == 1 else 'were'} left out"] if others else []


def _places(
    question: Question, places: Mapping[str, Sequence[str]], right: Mapping[str, bool] | str, rest: Sequence[str]
) -> Covered:
    """`places`: runtime or level → its runs. `rest`: which others were not asked, and why."""
    if isinstance(right, str):
        return Covered(question=question, answer="not asked", said=right)
    if len(places) < 2:
        return Covered(
            question=question, answer="not asked", said="; ".join(rest) or "there is no other", asked=tuple(places)
        )
    wrong = [place for place, runs in places.items() if not all(right[run] for run in runs)]
    said = f"wrong at {_listed(wrong)}" if wrong else _listed(list(places))
    return _answered(question, "; ".join([said, *rest]), list(places), wrong)


def _listed(names: Sequence[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last
