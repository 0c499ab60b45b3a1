"""The answers of every runtime to the cases of a phase: one finding for all that come to the same."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from encoder_conformance.commands.validate.evidence import Answers, Assessment, ValidationEvidence
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Phase, PhaseFinding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED, Outcome

Cause = tuple[Outcome, str | None]
"""The outcome, and the first stage out of line."""


def assess_answers(phase: Phase, evidence: ValidationEvidence, why: Callable[[ValidationEvidence], str]) -> Assessment:
    """`why`: the reason why there is no case of the phase that the file can be asked."""
    answers = evidence.answers
    if answers is None:
        return Assessment()
    cases = answers.cases[phase]
    said = _summary(cases, answers)
    unanswered = f"no runtime answered any of its {len(cases)} situations" if cases else why(evidence)
    return Assessment(said, _findings(phase, evidence, answers), "" if said else unanswered)


def _summary(cases: Sequence[Case], answers: Answers) -> str:
    ids = {case.id for case in cases}
    records = [record for run in answers.in_sigma if run.is_working for record in run.records if record.case in ids]
    tally = Tally.of(record.outcome for record in records)
    rms = max((record.rms for record in records if record.rms is not None), default=None)
    if not tally.applicable:
        return ""
    largest = "" if rms is None else f", largest rms {rms:.2g} σ"
    return f"{tally.as_expected} of {tally.applicable} checks{largest}"


def _findings(phase: Phase, evidence: ValidationEvidence, answers: Answers) -> Iterator[PhaseFinding]:
    """An error for each cause and the runs that share it. A file that a run does not load is the phase `loads`'s.

    What is wrong without any mask, at an ordinary size, is wrong everywhere: `numbers` alone reports it.
    """
    plain = {run.name: _without_mask(run, answers) for run in answers.working}
    shared: dict[tuple[Cause, tuple[str, ...]], list[tuple[Case, Record]]] = defaultdict(list)
    echoes = set()
    for case in answers.cases[phase]:
        by_cause: dict[Cause, dict[str, Record]] = defaultdict(dict)
        for name, record in _failures(case, answers).items():
            if phase != "numbers" and _echoes(record, plain[name]):
                echoes.add(case.id)
            else:
                by_cause[record.outcome, record.stage][name] = record
        for cause, records in by_cause.items():
            shared[cause, tuple(records)].append((case, next(iter(records.values()))))
    for ((_, stage), runs), failed in shared.items():
        yield _finding(phase, failed, runs, len(answers.working), _node(evidence, stage))
    if echoes:
        count = f"{len(echoes)} of {len(answers.cases[phase])}"
        message = f"{count} situations go wrong as no-mask does: see numbers"
        kind: FindingKind = "situations-wrong-without-mask"
        about = {"cases": sorted(echoes)}
        yield PhaseFinding(phase=phase, severity="warning", kind=kind, message=message, about=about)


def _failures(case: Case, answers: Answers) -> dict[str, Record]:
    """Run → its worst record of the case. σ says nothing of a run with integers: `reduction` judges its numbers."""
    judged = {run.name for run in answers.in_sigma}
    worst = {run.name: _worst(run, case) for run in answers.working}
    return {
        name: record for name, record in worst.items() if record and (name in judged or record.outcome != Outcome.FAIL)
    }


def _worst(run: RuntimeRun, case: Case) -> Record | None:
    """The failed check of a case that says most: its stages, which name the first out of line, then its output."""
    failed = [record for record in run.records if record.case == case.id and record.outcome not in EXPECTED]
    return next((record for record in failed if record.check == "stages"), failed[0] if failed else None)


def _without_mask(run: RuntimeRun, answers: Answers) -> Record | None:
    return next((_worst(run, case) for case in answers.cases["numbers"] if case.situation.situation == "no-mask"), None)


def _echoes(record: Record, plain: Record | None) -> bool:
    """Whether it fails to run as it does without a mask, or its numbers are wrong as they are there, as far as the file
    shows: from the same stage on."""
    if plain is not None and record.outcome == plain.outcome == Outcome.ERROR:
        return True
    if plain is None or not record.outcome == plain.outcome == Outcome.FAIL or record.check == "invariant":
        return False
    return record.check == "output" or record.stage == plain.stage


def _node(evidence: ValidationEvidence, stage: str | None) -> str:
    anchor = evidence.description.stages.get(stage or "")
    return f"the first wrong node makes {stage}: {anchor.node} ({anchor.tensor})" if anchor else ""


def _finding(
    phase: Phase, failed: Sequence[tuple[Case, Record]], runs: tuple[str, ...], working: int, node: str
) -> PhaseFinding:
    """One finding for all the cases of these of the `working` runs; the record of the first speaks for them."""
    where = "every runtime" if 1 < working == len(runs) else ", ".join(runs)
    situations, record = [case.situation for case, _ in failed], failed[0][1]
    sizes = {f"B = {situation.batch}, S = {situation.sequence}" for situation in situations}
    size = f" ({sizes.pop()})" if len(sizes) == 1 else ""
    names = ", ".join(situation.situation for situation in situations)
    message = f"{names}{size}, {where}: {record.outcome.value}: {record.message}"
    hint = node if record.check == "stages" else ""
    out = record.outcome == Outcome.FAIL and record.check != "invariant"
    return PhaseFinding(
        phase=phase,
        severity="error",
        kind=_kind(record),
        message=message,
        hint=hint,
        runtimes=runs,
        out_of_line=out,
        about={
            "situations": [situation.situation for situation in situations],
            "outcome": record.outcome.value,
            "stage": record.stage,
            "rms": record.rms,
            "max": record.max,
        },
    )


def _kind(record: Record) -> FindingKind:
    if record.outcome.state == "no answer":
        return "no-answer"
    if record.outcome != Outcome.FAIL:
        return "other-outcome"
    return "relation-broken" if record.check == "invariant" else "out-of-line"


def diagnoses(evidence: ValidationEvidence) -> tuple[Diagnosis, ...]:
    """Those of the first run that has any: a file has the same causes, whatever runs it.

    None where one layer of a stack is seen to be another: that is the cause, no bug of the catalogue is of one layer
    alone, and to play all of them in a large file takes minutes. None where a choice of its source's explains all, and
    of a run whose wrong answers are right in a fresh session: what it was asked before is their cause.
    """
    told = evidence.choice is not None or any(each.kind == "layers-differ" for each in evidence.description.findings)
    if evidence.answers is not None and not told:
        for run in evidence.answers.in_sigma:
            if run.dependence is not None and run.dependence.explains:
                continue
            if found := run.seen.diagnoses(run.name):
                return tuple(found)
    return ()
