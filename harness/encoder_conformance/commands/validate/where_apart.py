"""Where a whole file leaves its source: a mask that one of the two does not read, and the first step that differs."""

from collections.abc import Iterator, Sequence

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.first_apart import FirstApart
from encoder_conformance.blackbox.hiding import hiding
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import Source, where_apart
from encoder_conformance.blackbox.unread import unread
from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.protocol.messages import Precision
from encoder_conformance.subjects.subject import SubjectRequest


def masks_apart(
    whole: WholeComparison, source: Source, file: ExaminedFile, runs: Sequence[RuntimeRun], inputs: WholeInputs
) -> Iterator[Finding]:
    """The masks that one of the two reads, and the other does not, where they are apart with padding."""
    case, own = _padded_apart(whole), opened_file(source, file, runs)
    if case is None or own is None:
        return
    others = inputs.unmasked(case)
    unread_by = {which: unread(called, case.inputs, others) for which, called in (("source", source), ("file", own))}
    for name in others:
        which = [each for each in unread_by if name in unread_by[each]]
        if len(which) == 1:
            yield _unread(name, which[0], whole.source, case.name)


def mask_missing(name: str, source: Source, inputs: WholeInputs, precision: Precision) -> Iterator[Finding]:
    """The masks that the source may be given, of a file that takes none: what was compared is what both do without."""
    if inputs.roles.say_padding or not (masks := hiding(source, inputs, precision)):
        return
    message = f"{name} hides positions by {', '.join(masks)}, and the file takes no mask: both were asked without"
    hint = "never pad what it is given; or export with the mask among the inputs, as a tensor that hides some"
    yield Finding(severity="warning", kind="mask-missing", message=message, hint=hint, about={"masks": masks})


def _padded_apart(whole: WholeComparison) -> WholeCase | None:
    """The smallest case with padding in which they are apart, and no position sees padding alone."""
    apart = {each.case for each in whole.apart if each.run.name not in whole.wrong_runs and not each.problem}
    padded = [each for each in whole.cases if each.name in apart and each.undefined is not None]
    asked = [each for each in padded if each.undefined is not None and not each.undefined.any()]
    return min(asked, key=lambda each: each.batch * each.sequence, default=None)


def _unread(name: str, which: str, source: str, case: str) -> Finding:
    one, other = (source, "the file") if which == "source" else ("the file", source)
    message = f"{one} gives the same whatever {name!r} hides, and {other} does not ({case})"
    hint = "it was folded away: export with the mask among the inputs, as a tensor that hides some"
    if which == "source":
        hint = "it takes the mask, and does not hand it to its layers; or they hide nothing by it"
    about = {"input": name, "unread_by": which, "case": case}
    return noted("mask-ignored", message, **about).model_copy(update={"hint": hint})


def opened_file(source: Source, file: ExaminedFile, runs: Sequence[RuntimeRun]) -> Source | None:
    """The file as it is, in the worker that has it."""
    session = next((run.session for run in runs if run.session is not None), None)
    return None if session is None else Source(SubjectRequest(str(file.request.model.absolute())), session, source.held)


def first_step_apart(
    whole: WholeComparison,
    source: Source,
    file: ExaminedFile,
    runs: Sequence[RuntimeRun],
    inputs: WholeInputs,
    *,
    few: bool,
) -> Finding | None:
    """Where the file leaves its source, by the values of both inside: of a large file, in the smallest case."""
    off = [each for each in whole.apart if each.run.name not in whole.wrong_runs]
    own = opened_file(source, file, runs)
    if not off or own is None:
        return None
    worst = max(off, key=lambda each: each.rms or 0.0).case
    apart = [each for each in whole.cases if each.name in ({each.case for each in off} if few else {worst})]
    case = min(apart, key=lambda each: each.batch * each.sequence)
    found = _first_of(own, source, [_one_item(case, inputs), case.inputs] if few else [case.inputs])
    if found is None:
        return None
    hint = "values are paired by their numbers; what the two spell otherwise has no pair"
    if isinstance(found, str):
        said = noted("first-step-unknown", f"the first step apart is not known: {found}", case=case.name)
    else:
        message = f"from {found} on, nothing is what {whole.source} computes ({case.name}){found.also}"
        said = noted("first-step-apart", message, case=case.name, **found.about)
    return said.model_copy(update={"hint": hint})


def _one_item(case: WholeCase, inputs: WholeInputs) -> Outputs:
    """The item of a case of which most is hidden: the values of all items are as large as a large model."""
    return inputs.alone(case, 0 if case.hidden is None else int(case.hidden.sum(-1).argmax()))


def _first_of(own: Source, source: Source, asked: Sequence[Outputs]) -> FirstApart | str | None:
    """The first step apart, with the first of these inputs with which there is one; else what the last one showed."""
    found: FirstApart | str | None = None
    for inputs in asked:
        found = where_apart(own, source, inputs)
        give_freed_memory_back()  # of all values of both
        if isinstance(found, FirstApart):
            break
    return found
