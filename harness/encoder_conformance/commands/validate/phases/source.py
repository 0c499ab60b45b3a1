"""Phase `source`: the file against what it was made from: the same input to both, and what the export changed."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from encoder_conformance.commands.validate.evidence import Assessment, Compared, ValidationEvidence
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PhaseFinding, Severity
from encoder_conformance.subjects.interfaces import compared as compared_interfaces
from encoder_conformance.subjects.subject import Subject

_SHOWN = 6
_OF_THE_WHOLE: tuple[FindingKind, ...] = ("whole-out-of-line", "front-out-of-line")
_TURNED = "turn it round before the export, or name the input otherwise: callers know it by its name"
_UNLIKE_EACH_OTHER: tuple[FindingKind, ...] = ("norms-differ", "layers-differ")
_HIDES_NOTHING: tuple[FindingKind, ...] = (
    "mask-hides-nothing",
    "mask-ignored",
    "mask-after-softmax",
    "mask-hides-in-part",
    "mask-sign-flipped",
)


def assess(evidence: ValidationEvidence) -> Assessment:
    source, compared = evidence.source, evidence.compared
    if source is None:
        unread = evidence.subject.request.against is not None
        why = f"its stages were not compared: {evidence.unopened}" if evidence.unopened else ""
        return Assessment(not_asked=why if unread else "no source was named (--against)")
    found = [*_said(source), *_unmapped(evidence, source), *_changed(evidence, source)]
    found += [*_differences(evidence, source, compared), *([evidence.choice] if evidence.choice else [])]
    return Assessment(_summary(evidence, source, compared), found)


def _summary(evidence: ValidationEvidence, source: Subject, compared: Sequence[Compared]) -> str:
    own = len([name for name in source.own_names if name in evidence.subject.parameters])
    said = f"{own} of {len(evidence.subject.parameters)} parameters have theirs in {source.name}"
    if not compared:
        why = source.not_asked or ("a checkpoint does not run" if source.session is None else "")
        return f"{said}; {why}" if why else said
    rms = max((verdict.rms or 0.0 for each in compared for verdict in each.verdicts), default=0.0)
    same = sum(1 for each in compared if each.agrees)
    return f"{said}; {same} of {len(compared)} answers are the same, largest difference rms {rms:.2g} √2 σ"


def declared(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """The findings, in which a deviation that the user stated, or that the source has too, is a note."""
    whole, stated = evidence.whole, evidence.subject.request.deviations
    hint = f"{whole.source} does the same" if whole is not None and whole.agrees else "as stated"
    return [
        each.model_copy(update={"severity": "note", "hint": hint}) if each.deviation in stated else each
        for each in findings
    ]


def excused(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """The findings, in which numbers that are out of line in the source alike are warnings, and that runtimes differ
    where both are out of line so: the export is faithful."""
    found = _excused(evidence, findings)
    pairs = list(zip(findings, found, strict=True))
    excused = [each for before, each in pairs if before.severity == "error" != each.severity]
    of = {(name, case) for each in excused for name in each.runtimes for case in each.about.get("situations", ())}
    return [
        each.model_copy(update={"severity": "warning", "hint": excused[0].hint})
        if each.kind == "levels-differ" and _where(each) <= of
        else each
        for each in found
    ]


def _where(differ: PhaseFinding) -> set[tuple[str, str]]:
    """The runs that differ, with the situation in which they do."""
    situation = str(differ.about["case"]).rpartition("/")[2]
    return {(name, situation) for name in (*differ.runtimes, str(differ.about["beside"]))}


def as_its_source(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """The findings, in which what no encoder of the specification does is a warning where its source gives the same:
    norms or layers that differ, and an input that hides nothing, or not as a mask: it may be a memory, keys of
    positions before, or no mask. So is what a part that was cut out does not do, and the whole does."""
    whole = evidence.whole
    if whole is None or not whole.agrees:
        return list(findings)
    varied = {name for case in whole.cases for name in case.values}
    padded = any(case.is_padded for case in whole.cases)
    causal = evidence.answers is None and any(case.sequence > 1 for case in whole.cases)

    def is_alike(each: PhaseFinding) -> bool:
        if each.kind == "causal-built-in":
            return causal
        if each.kind == "size-baked-in":
            return evidence.description.cut is not None and _runs_at_others(whole, each.about["sizes"])
        unlike = each.phase == "layer" and each.kind in _UNLIKE_EACH_OTHER
        does_run = each.phase == "interface" and each.kind == "file-does-not-run"
        return unlike or does_run or (each.kind in _HIDES_NOTHING and (padded or each.about["name"] in varied))

    return _of_both(whole, findings, is_alike)


def _runs_at_others(whole: WholeComparison, sizes: Mapping[str, int]) -> bool:
    """Whether the whole file runs at other sizes than these, of "batch" and "sequence"."""
    asked = {"batch": {case.batch for case in whole.cases}, "sequence": {case.sequence for case in whole.cases}}
    return all(asked[axis] - {size} for axis, size in sizes.items())


def _excused(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """Those of numbers by themselves.

    Only where everything that both answered is the same, stages too, and only of the run that was compared; or where a
    source whose stages cannot be read has the same outputs. What the oracle makes of the whole file is no measure of it
    beside a source that gives what it gives.
    """
    if evidence.whole is not None and evidence.whole.agrees:
        findings = _of_both(evidence.whole, findings, lambda each: each.kind in _OF_THE_WHOLE)
    if evidence.as_source and evidence.whole is not None:
        return _of_both(evidence.whole, findings, lambda each: each.out_of_line)
    compared, run = evidence.compared, evidence.answers.first_working if evidence.answers else None
    same = all(each.agrees for each in compared) and any(each.check == "stages" for each in compared)
    if evidence.source is None or run is None or not same or not any(all(each.off) for each in compared):
        return list(findings)
    hint = f"{evidence.source.name} does the same: it is not the export that made it so"
    return [
        finding.model_copy(update={"severity": "warning", "hint": hint})
        if finding.severity == "error" and finding.out_of_line and run.name in finding.runtimes
        else finding
        for finding in findings
    ]


def _of_both(
    whole: WholeComparison, findings: Sequence[PhaseFinding], are: Callable[[PhaseFinding], bool]
) -> list[PhaseFinding]:
    """The findings, in which errors that `are` of numbers are warnings: no call of the source gives others."""
    hint = f"{whole.source} gives the same wherever both were asked, end to end: no call that was made shows it"
    return [
        each.model_copy(update={"severity": "warning", "hint": hint})
        if each.severity == "error" and are(each)
        else each
        for each in findings
    ]


def _said(source: Subject) -> Iterator[PhaseFinding]:
    """What was found while the source was opened."""
    for each in source.said:
        yield PhaseFinding(phase="source", **dict(each))


def _unmapped(evidence: ValidationEvidence, source: Subject) -> Iterator[PhaseFinding]:
    missing = [name for name in evidence.subject.parameters if name not in source.parameters]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        message = f"{source.name} has no tensor that is {shown}, by values or by name"
        hint = "rename it, or export from another checkpoint; its values were not compared"
        yield _finding("warning", "parameter-without-source", message, hint, parameters=missing)


def _changed(evidence: ValidationEvidence, source: Subject) -> Iterator[PhaseFinding]:
    """Say what the export changed, other than numbers."""
    description = evidence.description
    masks = source.description.mask_inputs if source.description else {}
    if description.roles is not None:
        if mask_missing(evidence):
            yield _without_mask(evidence, source.name, [*masks])
        elif description.mask_inputs or not masks:
            yield from _called_otherwise(evidence, source)
    if evidence.subject.rounded_as or evidence.subject.integers:
        narrow = evidence.subject.integers or evidence.subject.rounded_as
        message = f"the file holds {narrow}, and {source.name} what that is rounded from"
        yield _finding("note", "rounded-from-source", message, format=narrow)
    yield from _operators(evidence, source)


def mask_missing(evidence: ValidationEvidence) -> bool:
    """Whether masks were found in the source that was read, and the file takes none. What a part of it might be given
    is no mask of a model that has none itself."""
    source, whole = evidence.source, evidence.whole
    if source is None or source.description is None or evidence.description.roles is None:
        return False
    against = evidence.subject.request.against
    is_part = against is not None and source.at != against.at
    if is_part and whole is not None and whole.verdicts and whole.mask_missing is None:
        return False
    return bool(source.description.mask_inputs) and not evidence.description.mask_inputs


def _without_mask(evidence: ValidationEvidence, source: str, masks: list[str]) -> PhaseFinding:
    """What is right without a mask is right where nothing is padded. A source that cannot be asked without its mask
    shows nothing of that, and who calls it so cannot call the file."""
    whole, rounding = evidence.whole, evidence.rounding
    is_asked = (whole is not None and bool(whole.verdicts)) or (rounding is not None and rounding.made_from)
    message = f"{source} hides positions by {', '.join(masks)}, and the file takes no mask"
    if is_asked:
        hint = "never pad what it is given; or export with the mask among the inputs, as a tensor that hides some"
        return _finding("warning", "mask-missing", f"{message}: both were asked without", hint, masks=masks)
    hint = "it was folded away: export with the mask among the inputs, as a tensor that hides some"
    return _finding("error", "mask-missing", f"{message}, without which its source is not called", hint, masks=masks)


def _called_otherwise(evidence: ValidationEvidence, source: Subject) -> Iterator[PhaseFinding]:
    """How a call of one is none of the other's: each is right by itself, and who asks one as the other is misled."""
    if source.description is None:
        return
    for found in compared_interfaces(evidence.description, source.description, ("the file", source.name)):
        hint = _TURNED if found.severity == "error" else found.hint
        yield _finding(found.severity, found.kind, found.message, hint, **found.about)


def _operators(evidence: ValidationEvidence, source: Subject) -> Iterator[PhaseFinding]:
    """Name opsets of two files that differ, and operators that only one of them has."""
    description = evidence.description
    other = source.description
    if not isinstance(other, FileDescription) or other.file is None or description.file is None:
        return
    if other.file.opsets != description.file.opsets:
        before, after = (
            ", ".join(f"{domain} {version}" for domain, version in sorted(opsets.items()))
            for opsets in (other.file.opsets, description.file.opsets)
        )
        message, opsets = f"opsets: {before} in {source.name}, {after} in the file", description.file.opsets
        yield _finding("note", "opsets-differ", message, source=other.file.opsets, file=opsets)
    own, theirs = description.operators, other.operators
    gone = [f"{theirs[op]} {op}" for op in theirs if op not in own]
    new = [f"{own[op]} {op}" for op in own if op not in theirs]
    if gone or new:
        parts = [f"{', '.join(names)} {what}" for names, what in ((gone, "gone"), (new, "new")) if names]
        lost, added = ([op for op in one if op not in two] for one, two in ((theirs, own), (own, theirs)))
        yield _finding("note", "operators-differ", f"operators: {'; '.join(parts)}", gone=lost, new=added)


_SENTENCES = {
    (True, False): "the file is off from the oracle, and {source} is not",
    (False, True): "{source} is off from the oracle, and the file is not",
    (True, True): "both are off from the oracle, each in its way",
    (False, False): "each is in line with the oracle by itself",
}
"""Whether the file and the source are off → what is said of it."""


def _differences(evidence: ValidationEvidence, source: Subject, compared: Sequence[Compared]) -> Iterator[PhaseFinding]:
    """One finding for all cases that differ from the same tensor on. Where each is in line by itself and both are the
    same end to end, the part of the source that was asked is called otherwise inside of it, as with a causal mask."""
    if source.session is not None and evidence.answers is not None and not compared:
        message = f"{source.name} answered nothing that the file answered, too"
        yield _finding("warning", "source-answers-nothing", message, f"the worker's log: {source.session.log}")
    shared: dict[tuple[str, tuple[bool, bool]], list[Compared]] = defaultdict(list)
    stages = {each.case.id for each in compared if each.check == "stages" and not each.agrees}
    for each in compared:
        apart = each.first_apart
        if apart is not None and (each.check == "stages" or each.case.id not in stages):
            shared[apart.tensor, each.off].append(each)
    for (tensor, off), cases in _of_one_cause(shared).items():
        worst = max(cases, key=lambda each: (each.first_apart.rms or 0.0) if each.first_apart else 0.0).first_apart
        assert worst is not None
        names = ", ".join(dict.fromkeys(each.case.situation.situation for each in cases))
        far = worst.problem.text if worst.problem else f"rms {worst.rms:.3g} √2 σ, max {worst.max:.3g} √2 σ"
        anchor = evidence.description.stages.get(tensor)
        hint = f"in the file {tensor} is made by {anchor.node} ({anchor.tensor})" if anchor else ""
        alike = evidence.whole is not None and evidence.whole.agrees
        severity: Severity = "warning" if off == (False, True) or (alike and not any(off)) else "error"
        whose = _SENTENCES[off].format(source=source.name)
        message = f"{names}: differs from {source.name} from {tensor} on: {far}; {whose}"
        about = {"tensor": tensor, "rms": worst.rms, "max": worst.max, "file_is_off": off[0], "source_is_off": off[1]}
        yield _finding(severity, "differs-from-source", message, hint, **about, cases=[each.case.id for each in cases])


_Shared = Mapping[tuple[str, tuple[bool, bool]], Sequence[Compared]]
"""(Tensor, whether the file and the source are off) → the cases that differ from it on."""


def _of_one_cause(shared: _Shared) -> _Shared:
    """Without the cases in which both are off, where the file alone is off in others: it is what is wrong in those, and
    that the source is lost there too, as far from zero, is no second fault."""
    alone = any(off == (True, False) for _, off in shared)
    return {key: cases for key, cases in shared.items() if not (alone and key[1] == (True, True))}


def _finding(severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object) -> PhaseFinding:
    return PhaseFinding(phase="source", severity=severity, kind=kind, message=message, hint=hint, about=about)
