"""A file beside its source: what is measured of the two, and what a source that was not opened leaves."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.blackbox.same_steps import computes_the_same
from encoder_conformance.commands.validate.against import asked_alike, compared, opened
from encoder_conformance.commands.validate.against_saved import compare_saved, saved
from encoder_conformance.commands.validate.against_whole import compare_whole
from encoder_conformance.commands.validate.asking import RuntimeAsking, answers_of_runtimes
from encoder_conformance.commands.validate.evidence import Answers, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.rounding.measured import NOT_OF_INTEGERS, MadeFrom, rounding_of
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.same_choice import same_choice
from encoder_conformance.commands.validate.where_apart import opened_file
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import Progress
from encoder_conformance.subjects.subject import Subject, SubjectRequest


def beside_source(
    made_from: MadeFrom,
    subject: ExaminedFile,
    runs: list[RuntimeRun],
    own: Sequence[WholeCase],
    asking: RuntimeAsking,
) -> ValidationEvidence:
    """Beside its source: as two black boxes, and, where a layer is read off both, stage by stage."""
    source, session = made_from.request, made_from.session
    logs, progress = asking.logs, asking.progress
    whole = compare_whole((source, session), subject, runs, logs, progress, own)
    _require_one_answer(whole, subject)
    subject = _as_its_source(subject, whole)
    if not subject.is_understood:
        of_file = rounding_of(subject, runs, made_from, own, logs, progress)
        return ValidationEvidence(subject, None, whole=whole, rounding=of_file.rounding, not_rounded=of_file.why_not)
    with contextlib.ExitStack() as entered:
        try:
            held, origin = entered.enter_context(opened(source, subject, session, progress))
        except InputError as problem:
            measured = rounding_of(subject, runs, made_from, own, logs, progress)
            if measured.rounding is None:
                _require_compared(whole, subject, problem)
            judged = _beside_unopened(subject, runs, asking, whole)
            rounding, why_not = measured.rounding, measured.why_not
            is_alike = judged.as_source or _has_its_steps(judged, made_from, runs)
            return replace(judged, unopened=problem.problem, rounding=rounding, not_rounded=why_not, as_source=is_alike)
        part = replace(source, at=origin.at)
        if not whole.verdicts and origin.at != source.at:  # the part that was exported, by its parameters
            of_part = compare_whole((part, session), subject, runs, logs, progress, own)
            _require_one_answer(of_part, subject)
            whole = of_part if of_part.verdicts else whole
        of = MadeFrom(part, session, origin.parameters)
        measured = rounding_of(subject, runs, of, own, logs, progress)
        if origin.not_asked and session is not None:  # it holds a large model
            session.close()
        answers = answers_of_runtimes(held, runs, asking)
        judged = ValidationEvidence(held, answers, origin, whole=whole)
        judged = _compared(judged, origin, progress, states=_is_stated(subject))
        return replace(judged, rounding=measured.rounding, not_rounded=measured.why_not)


def _require_compared(whole: WholeComparison, subject: ExaminedFile, problem: InputError) -> None:
    """Raises InputError where nothing can be said of the file: its source is not opened for this problem."""
    if not whole.verdicts and not _is_faulty(subject):
        why = "; ".join((problem.problem, *whole.why_not))
        raise InputError(why, where=problem.where, hint=problem.hint) from None


def _beside_unopened(
    subject: ExaminedFile, runs: list[RuntimeRun], asking: RuntimeAsking, whole: WholeComparison
) -> ValidationEvidence:
    """Beside a source whose stages cannot be read."""
    answers = answers_of_runtimes(subject, runs, asking)
    is_alike = _is_as_its_source(answers, whole, subject)
    return ValidationEvidence(subject, answers, whole=whole, as_source=is_alike)


def _is_as_its_source(answers: Answers | None, whole: WholeComparison, subject: ExaminedFile) -> bool:
    """Whether what is out of line in the file is so in its source, which is not opened: it has the same outputs, also
    far from zero, where most that is out of line is; or it takes no values, and nothing else can be given to it.

    What stands before the encoder may leave nothing of an offset: where x is made of values, it is not known.
    """
    if answers is None or not whole.agrees or all(run.conforms for run in answers.working):
        return False
    far, roles = WholeInputs.of(subject.description).far_case(), subject.description.roles
    return far is None or (roles is not None and roles.x in far.values)


def _has_its_steps(judged: ValidationEvidence, made_from: MadeFrom, runs: Sequence[RuntimeRun]) -> bool:
    """Whether the file has the outputs of its source and, where some of its numbers are out of line, its steps."""
    whole, answers, roles = judged.whole, judged.answers, judged.description.roles
    if whole is None or not whole.agrees or answers is None or made_from.session is None or roles is None:
        return False
    source = Source(made_from.request, made_from.session, judged.subject.dtype)
    own = opened_file(source, judged.subject, runs)
    case = next((each for each in whole.cases if each.sequence > 1 and not each.is_padded), None)
    if own is None or case is None or all(run.conforms for run in answers.working):
        return False
    return computes_the_same(own, source, case, roles.x)


def _is_stated(subject: ExaminedFile) -> bool:
    """Whether the user said what it should be, or it is judged with a deviation already."""
    return subject.request.layer is not None or bool(subject.request.deviations)


def _compared(judged: ValidationEvidence, source: Subject, progress: Progress, *, states: bool) -> ValidationEvidence:
    """With the answers of its source beside its own, where it has any. `states`: nothing is left to choose."""
    answers = judged.answers
    theirs = asked_alike(source, judged.subject, answers, progress) if answers else None
    if answers is None or theirs is None:
        return judged
    is_apart = judged.whole is not None and bool(judged.whole.apart)
    choice = None if states or is_apart else same_choice(source, answers, theirs)
    if choice is None:
        return replace(judged, compared=compared(answers, theirs))
    request = replace(judged.subject.request, deviations=choice.names)
    subject = replace(judged.subject, request=request)
    return replace(judged, subject=subject, compared=choice.compared, choice=choice.finding)


def _is_faulty(subject: ExaminedFile) -> bool:
    """Whether something is wrong in the file by itself, which is told whatever its source is."""
    return any(each.severity == "error" for each in subject.description.findings)


def _require_one_answer(whole: WholeComparison, subject: ExaminedFile) -> None:
    """Raises InputError for a source that answers the same inputs otherwise each time: a part of it that does not is
    no source of the file, unless the user says so."""
    if whole.unrepeatable is not None and not _is_faulty(subject):
        hint = "nothing was compared; --at names a part that answers alike, and NAME.npz holds outputs that were saved"
        raise InputError(whole.unrepeatable.message, where=f"--against {whole.source}", hint=hint)


def _as_its_source(subject: ExaminedFile, whole: WholeComparison) -> ExaminedFile:
    """The file, in which what it is seen to do otherwise than the specification is as if it were stated, where its
    source has the same outputs at every length, and the user stated no layer: a causal mask, as in a decoder."""
    request, findings = subject.request, subject.description.findings
    seen = tuple(dict.fromkeys(each.deviation for each in findings if each.deviation))
    if not whole.agrees or request.layer is not None or request.deviations:
        return subject
    return replace(subject, request=replace(request, deviations=seen))


def beside_saved(
    source: SubjectRequest, subject: ExaminedFile, runs: list[RuntimeRun], asking: RuntimeAsking
) -> ValidationEvidence:
    """Beside outputs that were saved: in σ, or as far as its rounding takes a file of integers from them."""
    logs, progress = asking.logs, asking.progress
    where, measured, whole = f"--against {source.target}", NOT_OF_INTEGERS, None
    if subject.integers and subject.description.whole is not None:
        case = saved(source.folder / source.target, subject.description.whole, where)
        measured = rounding_of(subject, runs, MadeFrom(source, saved=case), (), logs, progress)
        if measured.rounding is None:
            raise InputError(measured.why_not, where=where)
    else:
        whole = compare_saved(source, subject, runs, logs, progress)
    answers = answers_of_runtimes(subject, runs, asking) if subject.is_understood else None
    return ValidationEvidence(
        subject, answers, whole=whole, unopened=f"{source.target} has none", rounding=measured.rounding
    )
