"""Phase `whole`: the file from its first input to its last output, against its source, whatever layer it is."""

from collections import defaultdict
from collections.abc import Iterator

from encoder_conformance.blackbox.comparing import LIMIT, NO_NUMBERS
from encoder_conformance.commands.validate.evidence import Assessment, ValidationEvidence
from encoder_conformance.commands.validate.phases.source import mask_missing
from encoder_conformance.commands.validate.whole import WholeComparison, WholeVerdict
from encoder_conformance.protocol.findings import Finding, PhaseFinding, noted

_SHOWN = 4


def assess(evidence: ValidationEvidence) -> Assessment:
    """What is apart, by run; and what was not compared."""
    whole = evidence.whole
    if whole is None:
        return Assessment(not_asked="no source was named (--against)")
    if not whole.verdicts:
        return Assessment(not_asked=f"not compared: {'; '.join(whole.why_not) or 'the file could not be read'}")
    return Assessment(_summary(whole), [*_apart(whole), *_notes(whole, is_told=mask_missing(evidence))])


def _summary(whole: WholeComparison) -> str:
    names = ", ".join(name if name == other else f"{name} ({other})" for name, other in whole.outputs.items())
    far = [each.rms for each in whole.verdicts if each.rms is not None]
    largest = f"largest difference rms {max(far):.3g} σ" if far else "and none has numbers to compare"
    same = sum(each.agrees for each in whole.verdicts)
    said = f"{same} of {len(whole.verdicts)} outputs are those of {whole.source}, {largest}"
    return f"{said} (limit {LIMIT:g}), in {len(whole.cases)} case{'s' * (len(whole.cases) != 1)} of {names}"


def _apart(whole: WholeComparison) -> Iterator[PhaseFinding]:
    """One finding for each output and each set of runs that show it."""
    by_output: dict[str, dict[str, list[WholeVerdict]]] = defaultdict(lambda: defaultdict(list))
    runs = {each.run.name for each in whole.verdicts}
    for each in whole.apart:
        by_output[each.output][each.run.name].append(each)
    for output, by_run in by_output.items():
        alone = () if len(by_run) == len(runs) else tuple(by_run)
        verdicts = next(iter(by_run.values())) if not alone else [each for found in by_run.values() for each in found]
        what = f"the output {output!r}" if output else "the file"
        who = f"{', '.join(alone)}: " if alone else ""
        message = f"{who}{what} is not that of {whole.source}: {_cases(verdicts)}"
        yield PhaseFinding(
            phase="whole",
            severity="error",
            kind="output-differs",
            message=message,
            hint=_hint(whole, verdicts),
            runtimes=alone,
            about={"output": output, "cases": sorted({each.case for each in verdicts})},
        )


def _cases(verdicts: list[WholeVerdict]) -> str:
    far = sorted(verdicts, key=lambda each: -(float("inf") if each.problem else each.rms or 0.0))
    shown = [f"{each.case}: {each.problem or f'rms {each.rms:.3g} σ'}" for each in far[:_SHOWN]]
    more = len(far) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _hint(whole: WholeComparison, verdicts: list[WholeVerdict]) -> str:
    """What the cases have in common that are apart, where others are not."""
    if (other := whole.exchanged.get(verdicts[0].output)) is not None:
        return f"it is the source's {other!r}: outputs are compared by name, else in order"
    apart = {each.case for each in verdicts}
    off = [case for case in whole.cases if case.name in apart]
    output = verdicts[0].output
    unlike = {each.case for each in whole.apart if not output or each.output in (output, "")}  # "": it raises there
    right = [case for case in whole.cases if case.name not in apart | unlike]
    if all(each.problem.startswith(NO_NUMBERS) for each in verdicts):
        return "a number that its format does not hold (float16 ends at 65504), and 0 times it or it less itself"
    if not right:
        return "at every size and mask: other weights, or another computation"
    if all(case.is_padded for case in off):
        return "with padding alone: look at how the mask is made and added"
    if all(case.sequence > 1 for case in off) and all(case.sequence == 1 for case in right):
        return "with more than one position alone: look at positions and attention"
    if all(case.batch > 1 for case in off) and all(case.batch == 1 for case in right):
        return "with more than one item alone: look at what the export made constant of the batch"
    return f"right in {', '.join(case.name for case in right[:_SHOWN])}"


def _notes(whole: WholeComparison, *, is_told: bool) -> Iterator[PhaseFinding]:
    """`is_told`: that a mask is missing is an error of another phase."""
    for note in (*whole.notes, *([whole.first_apart] if whole.first_apart else ())):
        if not (is_told and note is whole.mask_missing):
            yield _finding(note)
    for why in whole.not_compared:
        told = why.model_copy(update={"severity": "warning", "message": f"not compared: {why.message}"})
        yield _finding(told)
    if whole.better:
        message = f"the file has numbers where its source has none: {', '.join(whole.better)}"
        yield _finding(noted("more-numbers-than-source", message, cases=whole.better))


def _finding(found: Finding) -> PhaseFinding:
    return PhaseFinding(phase="whole", **dict(found))
