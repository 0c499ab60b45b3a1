"""Shows a check on the terminal: what was found with its evidence, then the verdict, and as what."""

from collections.abc import Sequence
from itertools import chain, groupby, islice, repeat

from rich.console import Console
from rich.table import Table

from encoder_conformance.commands.check.covered import sizes_text
from encoder_conformance.commands.check.error_size import error_size
from encoder_conformance.commands.check.results import CheckResult, PartResult, VariantResult
from encoder_conformance.commands.check.verdict import around, choices, closing, of_model
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.protocol.arguments import LAYOUTS, MEANINGS
from encoder_conformance.protocol.description import as_text
from encoder_conformance.protocol.findings import Finding, said_at
from encoder_conformance.protocol.module_description import MapSearch, ModuleDescription
from encoder_conformance.protocol.way_back import Dropped
from encoder_conformance.reports.run.terminal import show_finding, show_line
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.spec.words import in_short

_WIDTH = 11
_ALIKE = "the same code and settings, the same bits with the same parameters"


def show_check(screen: Console, result: CheckResult, *, verbose: bool = False) -> None:
    """What was found, in a few lines or all of it; then, as the only bold lines, the verdict."""
    shown = ((name, version) for name, version in result.versions.items() if name not in ("numpy", "onnx"))
    versions = ", ".join(f"{name} {version}" for name, version in shown)
    show_line(screen, f"{result.target}  {versions}")
    for place, part in enumerate(result.parts):
        if _is_told_with_another(part) and not verbose:
            continue
        if verbose:
            _show_all(screen, part)
        else:
            _show_short(screen, part)
            if part.at:
                _show_alike(screen, part.at, result.parts)
        _show_variants(screen, part, verbose=verbose)
        for line in closing(part, result.parts[:place]):
            status = part.status if line.status is None else line.status
            show_line(screen, line.text, "bold red" if status else "bold green")
    for (kind, message, hint), refused in groupby(result.refused, lambda each: (each.kind, each.message, each.hint)):
        show_line(screen, "")
        _row(screen, "module", in_short(each.at for each in refused))
        show_finding(screen, Finding(severity="error", kind=kind, message=message, hint=hint))
        show_line(screen, "It could not be judged: see above.", "bold red")
    _show_of_whole(screen, result, verbose=verbose)
    if left := around(result):
        show_line(screen, "")
        show_line(screen, left)
    if result.kept_since:
        show_line(
            screen, f"Judged {result.kept_since}; nothing that this rests on has changed since. --rerun judges anew."
        )


def _show_of_whole(screen: Console, result: CheckResult, *, verbose: bool) -> None:
    """What was found of a model around its parts."""
    if not result.of_whole:
        return
    show_line(screen, "")
    _row(screen, "model", result.target)
    for finding in result.of_whole:
        advice = finding.hint if verbose or finding.severity != "note" else ""
        show_finding(screen, finding.model_copy(update={"hint": advice}))
    if wrong := of_model(result):
        show_line(screen, wrong, "bold red")


def _show_short(screen: Console, part: PartResult) -> None:
    """How it was called, what it was read as, and what was found."""
    described = part.described
    if part.at:
        show_line(screen, "")
        _row(screen, "module", f"{part.at}: {described.type}")
    _show_call(screen, described)
    if described.layer is not None and not part.as_told:
        _row(screen, "read", f"{choices(described.layer)}{_proved(described)}")
    elif described.searched is not None:
        _row(screen, "searched", _searched(described.searched))
    for finding in part.findings:
        advice = finding.hint if finding.severity == "error" else ""
        show_finding(screen, finding.model_copy(update={"hint": advice}))
    if part.status == 1 and not part.diagnoses:
        _show_failures(screen, part.records, 2)


def _is_told_with_another(part: PartResult) -> bool:
    """Whether all that was found of it is what was found of the part that it is like."""
    return bool(part.like or part.described.same_as) and not part.records and not part.variants


def _show_alike(screen: Console, at: str, parts: Sequence[PartResult]) -> None:
    told = [each for each in parts if at in (each.like, each.described.same_as) and _is_told_with_another(each)]
    for said, alike in groupby(sorted(told, key=_likeness), key=_likeness):
        _row(screen, "alike", f"{in_short(each.at for each in alike)}: {said}, and not asked again")


def _show_call(screen: Console, described: ModuleDescription) -> None:
    if described.given:
        _row(screen, "given", f"{', '.join(described.given)}, as {described.given_by} makes and gives it")
    for said in described.called:
        _row(screen, "called", said)
    if described.x.layout == LAYOUTS["SBD"]:
        _row(screen, "called", f"{described.x.argument} is {described.x.layout}: the batch is its second axis")


def _proved(described: ModuleDescription) -> str:
    proof = described.proof
    return f"; {proof.moved} of {proof.of} parameters found and tested" if proof is not None and proof.holds else ""


def _show_all(screen: Console, part: PartResult) -> None:
    described = part.described
    show_line(screen, "")
    _row(screen, "module", f"{part.at + ': ' if part.at else ''}{described.type}")
    x = described.x
    _row(screen, "x", f"{x.argument} {x.layout}, d_model {x.d_model}", x.evidence)
    if not described.masks:
        _row(screen, "mask", "none")
    for mask in described.masks:
        meaning = "how many positions of each item are there" if mask.counted else MEANINGS[mask.meaning]
        _row(screen, "mask", f"{mask.argument} {mask.dtype} {mask.shape}, {meaning}", mask.evidence)
    if described.attention:
        _row(screen, "attention", described.attention, "as its configuration says; --attention asks another of hf:NAME")
    _show_call(screen, described)
    if left := _left_out(described):
        _row(screen, "without", left)
    if described.layer is not None:
        _row(screen, "it is", choices(described.layer))
        for choice in described.facts:
            if choice.key in ("norm.placement", "norm.epsilon", "feed_forward.activation", "attention.scale"):
                _row(screen, "", f"{choice.key} {as_text(choice.value)}", choice.evidence)
    if part.published:
        _row(screen, "published", f"{', '.join(part.published)}: such a layer, at its own sizes", "conform list layers")
    _show_map(screen, described)
    for finding in part.findings:
        show_finding(screen, finding)
    if part.like:
        _row(screen, "judged", f"as {part.like}: {_likeness(part)}, and was not asked again")
    elif part.layer is not None:
        _show_judged(screen, part)


def _likeness(part: PartResult) -> str:
    return _ALIKE if part.described.same_as else "read and proved to be like it"


def _left_out(described: ModuleDescription) -> str:
    """The arguments that were left at their defaults, those first that matter."""
    kinds = {True: "changes the output", False: "changes nothing", None: "is taken in no form that was tried"}
    first = sorted(described.ungiven_arguments, key=lambda each: not each.matters)
    return ", ".join(f"{each.argument} ({kinds[each.changes]})" for each in first)


def _show_map(screen: Console, described: ModuleDescription) -> None:
    own = {source.own for source in described.parameters.values()}
    if described.parameters:
        text = f"{len(described.parameters)} parameters in {len(own)} of its own"
        for name, source in islice(described.parameters.items(), 16):
            more = f", × {source.times:g}" if source.times != 1 else ""
            more += f", + {source.more:g}" if source.more else ""
            text += f"\n{'':{_WIDTH}}  {name:<28} {source.own}, {source.form.replace('_', ' ')}{more}"
        left = len(described.parameters) - 16
        text += f"\n{'':{_WIDTH}}  and {left} more" if left > 0 else ""
        _row(screen, "map", text)
    proof, search = described.proof, described.searched
    if proof is not None and proof.holds:
        size = "" if proof.rms is None else f"its output is {proof.rms:.2f} σ from the oracle's, and "
        moved = f"{proof.moved} of {proof.of} parameters moved alone do as they do there"
        _row(screen, "proved", f"live in {proof.dtype}: {size}{moved}")
    if search is not None:
        _row(screen, "searched", _searched(search))
    if described.stages:
        shown = (f"{stage} ({module})" for stage, module in islice(described.stages.items(), 8))
        _row(screen, "stages", ", ".join(shown))


def _searched(search: MapSearch) -> str:
    far = f" ({search.distance:.0e} of its output apart)" if search.near else ""
    matches = f"one {'comes near' if search.near else 'matches'}{search.deviation and f' with {search.deviation}'}{far}"
    how = "none matches" if search.deviation is None else matches
    tried = f" with each of {search.deviations} deviations" if search.deviations else ""
    heads = f", and {search.head_counts} numbers of heads" if search.head_counts > 1 else ""
    return f"{search.maps} maps{tried}{heads}: {how}"


def _show_judged(screen: Console, part: PartResult) -> None:
    assert part.layer is not None
    as_what = f"as {part.layer.layer}" if part.as_told else "as what was read"
    dtypes, size = ", ".join(part.described.dtypes), error_size(part.records, "σ")
    _row(screen, "judged", f"{as_what} in {dtypes}: {part.tally}{size and f', {size}'}")
    if asked := [answer.name.replace("-", " ") for answer in part.way_back if answer.outcome == "pass"]:
        _row(screen, "way back", f"{', '.join(asked)}: as they should be")
    for answer in part.way_back:
        if answer.name == "dropout" and answer.outcome != "not-asked" and answer.drops is not None:
            _row(screen, "drops", ", ".join(map(_dropped, answer.drops)) or "nothing")
    _show_asked(screen, part)
    _show_failures(screen, part.records, len(part.records))


def _dropped(drops: Dropped) -> str:
    """`0.1 in dropout1 (model.py:20)`."""
    return f"{drops.rate:g}{f' in {drops.part}' if drops.part else ''}{said_at(drops.where)}"


def _show_failures(screen: Console, records: Sequence[Record], most: int, of: str = "") -> None:
    """`of`: the form of the module that they are of."""
    failed = [record for record in records if record.outcome not in EXPECTED]
    for record in failed[:most]:
        situation = record.case.rpartition("/")[2]
        own = ", its own parameters" if "-own/" in record.case else ""
        message = record.message.splitlines()[0] if record.message else ""
        text = f"✗ {of}{situation}{own} {record.dtype} {record.check}: {record.outcome.value}: {message}"
        show_line(screen, text[:400], "red")
    if len(failed) > most:
        show_line(screen, f"  and {len(failed) - most} more", "dim")


def _show_variants(screen: Console, part: PartResult, *, verbose: bool) -> None:
    """One row a form of it, in σ of its own format; then the first of its calls that give no output, or, `verbose`, all
    that are wrong."""
    if not part.variants:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("form", "outputs", "largest error", "first stage apart"):
        table.add_column(title, overflow="fold")
    own = [record for record in part.records if record.check == "output" and record.dtype == "float32"]
    if own:
        apart = next((record.stage for record in part.records if record.stage), "")
        table.add_row("as it is", _counted(Tally.of(record.outcome for record in own)), _error(own, "float32"), apart)
    for each in part.variants:
        if each.status == 2:
            table.add_row(each.word, "not judged", "", "")
        else:
            table.add_row(each.word, _counted(each.tally), _error(each.records, each.format), _first_apart(each))
    screen.print(table)
    for each in part.variants:
        shown = each.records if verbose else each.unanswered
        _show_failures(screen, shown, len(shown) if verbose else 1, f"{each.word}, ")


def _first_apart(variant: VariantResult) -> str:
    return variant.first_stage or ("none: no output" if variant.unanswered else "")


def _counted(tally: Tally) -> str:
    return f"{tally.as_expected} of {tally.applicable}"


def _error(records: Sequence[Record], format: str) -> str:
    return error_size(records, f"σ of {format}").removeprefix("largest error ") or "no number"


def _show_asked(screen: Console, part: PartResult) -> None:
    """What was asked, format by format, with which masks; and what no verdict of a check covers."""
    for label, each in zip(chain(("asked",), repeat("")), part.asked, strict=False):
        sizes = f"{sizes_text(each.lengths)} positions, {sizes_text(each.items)} items"
        masked = f"with masks up to {each.longest_masked} positions" if each.longest_masked else "without masks"
        _row(screen, label, f"{each.dtype}: {sizes}, {masked}: {', '.join(each.checks)}")
    _row(screen, "not asked", ", ".join(each.said for each in part.not_asked))


def _row(screen: Console, label: str, text: str, evidence: str = "") -> None:
    show_line(screen, f"{label:<{_WIDTH}}{text}" + (f" · {evidence}" if evidence else ""))
