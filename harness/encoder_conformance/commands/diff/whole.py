"""Compares two modules as black boxes: of one at least no layer was read, so that there is no oracle and no stage.

B is called in float64, and σ is measured on it, as on the source of a file (`blackbox/measured.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from encoder_conformance.blackbox.comparing import (
    LIMIT,
    judged,
    kind_of_problem,
    paired,
    undefined_apart,
    undefined_differ,
)
from encoder_conformance.blackbox.first_apart import FirstApart
from encoder_conformance.blackbox.hiding import as_causal
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, RaisedCase, Source, where_apart
from encoder_conformance.commands.diff.interface import interface_findings
from encoder_conformance.commands.diff.results import OutputDifference, UnreadSide, WholeDiffResult
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.arguments import LAYOUTS, MaskArgument
from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, SourceLine, noted
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.subjects.opening import is_unread
from encoder_conformance.subjects.subject import Subject, SubjectRequest
from encoder_conformance.worker.failure import Failure

HELD: DtypeName = "float32"
"""The format in which A is called."""
_SHOWN = 4


def compare_modules(first: Subject, second: Subject, folder: SubjectRequest, progress: Progress) -> WholeDiffResult:
    """Each output of A in float32 beside B's in float64, at sizes, masks and ranges of values that A takes.

    `folder`: the request whose folder their names are of. Raises InputError where one cannot be called so, or answers
    another thing each time.
    """
    inputs, described = _inputs_of(first), first.as_module
    cases = _cases_of(inputs, described.x.argument)
    left_out = [mask.argument for mask in described.masks if not _is_given(mask)]
    one, two = (Source(_request(side, folder), side.worker, HELD) for side in (first, second))
    progress.begin("are they the same twice", 2)
    _, measure = (_measure(side, source, cases[0], progress) for side, source in ((first, one), (second, two)))
    cases += measure.first_taken(inputs.long_cases())
    cases = as_causal(two, inputs, cases, measure.widest)
    progress.begin("asking both", len(cases))
    expected = measure.expected(cases, progress)
    if measure.changed:
        raise InputError(measure.changed.message, where=second.name, hint="nothing was compared")
    answered = {each.case.name for each in expected}
    outputs, apart, undefined = _apart(one, expected)
    beside = sorted({name for each in expected for name in each.outputs} - {*outputs.values()})
    return WholeDiffResult(
        sides=(first.name, second.name),
        unread=tuple(f"{side.name}: {_why(side)}" for side in (first, second) if is_unread(side)),
        unread_of=(*_unread("A", first), *_unread("B", second)),
        outputs=outputs,
        apart=apart,
        cases=tuple(each.case.name for each in expected),
        masks=inputs.roles.masks,
        findings=(
            *interface_findings(first.description, second.description, HELD),
            *_notes(two, measure, left_out),
            *map(_beside, beside),
            *undefined,
            *_first_apart(one, two, apart, [each.case for each in expected]),
            *_unanswered(one, [case for case in cases if case.name not in answered], measure.failed),
        ),
    )


def _measure(side: Subject, source: Source, case: WholeCase, progress: Progress) -> Measure:
    """Raises InputError for a side that is no measure."""
    measure = Measure(source, few=False)
    if problem := measure.unfit(case):
        raise InputError(problem.message, where=side.name, hint="nothing was compared")
    progress.step(side.name)
    return measure


def _beside(name: str) -> Finding:
    message = f"B's output {name!r} has none in A beside it"
    return Finding(severity="warning", kind="output-unpaired", message=message, about={"output": name, "side": "B"})


def _unread(mark: Literal["A", "B"], side: Subject) -> Iterator[UnreadSide]:
    """What a program is told of a side that no layer was read off."""
    if not is_unread(side):
        return
    reason = side.as_module.not_read
    if reason is None:
        yield UnreadSide(side=mark)
    else:
        yield UnreadSide(side=mark, features=reason.features, source=SourceLine.of(reason.where))


def _why(side: Subject) -> str:
    reason = side.as_module.not_read
    return reason.problem if reason else "not all of its parameters have a place in a layer"


def _request(side: Subject, named: SubjectRequest) -> SubjectRequest:
    target, _, at = side.name.partition("@")
    return replace(named, target=target, at=at or None)


def _inputs_of(side: Subject) -> WholeInputs:
    """The inputs of a module as those of a file: x and its masks, in the form in which they are given.

    Raises InputError for a module that takes x otherwise, or needs more.
    """
    described = side.as_module
    layout = described.x.layout
    if described.called or layout not in LAYOUTS.values():
        said = "; ".join(described.called) or f"x is {layout}"
        hint = "compare an export of one with the other: conform validate FILE.onnx --against MODULE"
        raise InputError(f"is called otherwise than with x and masks ({said})", where=side.name, hint=hint)
    axes = layout.strip("[]").split(", ")
    shape = tuple(described.x.d_model if axis == "d_model" else axis for axis in axes)
    x = WholeInput(name=described.x.argument, dtype=HELD, shape=shape)
    masks = [_mask_input(mask) for mask in described.masks if _is_given(mask)]
    whole = WholeFile(inputs=(x, *masks), outputs=(), held=HELD)
    return WholeInputs(whole, {mask.argument: mask.meaning for mask in described.masks})


_AXES: dict[str, int | str] = {"B": "batch", "S": "sequence", "1": 1}


def _is_given(mask: MaskArgument) -> bool:
    """Whether its shape is known of every size, and it tells items apart: the number of heads is not known here."""
    return set(mask.axes) <= _AXES.keys() and mask.by_item


def _mask_input(mask: MaskArgument) -> WholeInput:
    return WholeInput(name=mask.argument, dtype=mask.dtype, shape=tuple(_AXES[axis] for axis in mask.axes))


def _cases_of(inputs: WholeInputs, x: str) -> list[WholeCase]:
    """The cases, one far from zero, and those in which nothing is hidden once more without any mask."""
    far = inputs.far_case()
    found = [*inputs.cases(), *([far] if far else [])]
    if not inputs.roles.masks:
        return found
    bare = [each for each in found if not each.is_padded]
    return [*found, *(replace(each, name=f"{each.name}, no mask", inputs={x: each.inputs[x]}) for each in bare)]


def _apart(
    one: Source, expected: Sequence[ExpectedOutputs]
) -> tuple[dict[str, str], tuple[OutputDifference, ...], list[Finding]]:
    """A's output → B's, how far each is apart in each case, and items whose numbers nothing says that are."""
    pairs: dict[str, str] = {}
    found, undefined = list[OutputDifference](), list[Finding]()
    for each in expected:
        answer = one.outputs(each.case.inputs, "own")
        if isinstance(answer, Failure):
            problem = f"A raises {answer.message.splitlines()[0]}"
            found.append(_problem(each, "", problem, "one-raises"))
            continue
        pairs, unpaired = paired(answer, each.outputs)
        for name, theirs in pairs.items():
            compared = answer[name], each.outputs[theirs], each.sigma[theirs], each.case.undefined
            rms, problem, has_more = judged(*compared)
            if (far := undefined_apart(*compared)) > LIMIT:
                undefined.append(undefined_differ(each.case, name, far))
            if has_more:  # no better than B, as an export may be than its source: it is another module
                found.append(_problem(each, name, "no finite number in B where A has a number", "no-numbers"))
            elif problem:
                found.append(_problem(each, name, problem, kind_of_problem(answer[name], each.outputs[theirs])))
            else:
                found.append(OutputDifference(case=each.case.name, output=name, rms=rms))
        for name in unpaired:
            problem = f"B has no output of the shape {list(answer[name].shape)}"
            found.append(_problem(each, name, problem, "output-unpaired"))
    return pairs, tuple(found), undefined


def _problem(each: ExpectedOutputs, output: str, problem: str, kind: FindingKind) -> OutputDifference:
    """An output that is no number away."""
    return OutputDifference(case=each.case.name, output=output, rms=None, problem=problem, problem_kind=kind)


def _notes(two: Source, measure: Measure, left_out: Sequence[str]) -> Iterator[Finding]:
    """How B was given what A takes, and what was not compared."""
    if said := two.how_given:
        about = {"given": two.given, "in_order": two.in_order}
        yield noted("inputs-given-by-order", f"B was given {said}", **about)
    if measure.widest != "float64":
        yield noted("no-float64", "B was compared in float32: it has no float64, or no numbers in it", side="B")
    for name in left_out:
        message = f"{name} was not given: its shape has heads in it, or no items"
        yield Finding(severity="warning", kind="mask-not-given", message=message, about={"argument": name})


def _first_apart(
    one: Source, two: Source, apart: Sequence[OutputDifference], cases: Sequence[WholeCase]
) -> Iterator[Finding]:
    """Where A leaves B, by the values of both inside."""
    off = [each for each in apart if not each.agrees]
    if not off:
        return
    worst = max(off, key=lambda each: each.rms or 0.0).case
    case = next(each for each in cases if each.name == worst)
    found = where_apart(one, two, case.inputs)
    if isinstance(found, FirstApart):
        hint = "values are paired by their numbers; what the two spell otherwise has no pair"
        yield Finding(
            severity="note",
            kind="first-step-apart",
            message=f"from {found} on, nothing of A is what B computes ({case.name}){found.also}",
            hint=hint,
            about={"case": case.name, **found.about},
        )
    elif found is not None:
        yield noted("first-step-unknown", f"the first step apart is not known: {found}", case=case.name)


def _unanswered(one: Source, cases: Sequence[WholeCase], failed: Sequence[RaisedCase]) -> Iterator[Finding]:
    """The cases that B raises in: an error where A answers. `failed`: what it raises, in the order of the cases."""
    kinds: dict[tuple[str, bool], list[str]] = {}
    for case, why in zip(cases, failed, strict=True):
        raised = why.raised.split("   ")[0]  # without its frames
        both = isinstance(one.outputs(case.inputs, "own"), Failure)
        kinds.setdefault((raised, both), []).append(case.name)
    for (raised, both), names in kinds.items():
        more = f" and {len(names) - _SHOWN} more cases" if len(names) > _SHOWN else ""
        where, about = "; ".join(names[:_SHOWN]) + more, {"cases": names}
        if both:
            yield noted("both-raise", f"not compared, since both raise in {where}: {raised}", **about)
        else:
            message = f"A answers in {where}, and B raises {raised}"
            yield Finding(severity="error", kind="one-raises", message=message, about={**about, "side": "B"})
