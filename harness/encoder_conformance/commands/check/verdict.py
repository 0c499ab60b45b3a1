"""The last lines of a check: the verdict, its causes, the place in the source, the number, and what to run next."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from encoder_conformance.commands.check.covered import up_to
from encoder_conformance.commands.check.error_size import error_size
from encoder_conformance.commands.check.results import CheckResult, PartResult, VariantResult
from encoder_conformance.commands.check.unasked import drops_unasked
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.protocol.arguments import MEANINGS, MaskArgument
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.protocol.module_description import ModuleDescription, argument_key
from encoder_conformance.reports.run.matrix import format_sigma
from encoder_conformance.reports.run.terminal import HEADINGS, SIGMA, diagnosis_rest
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.published import COMBINATION
from encoder_conformance.spec.words import in_short, listed, more_choices
from encoder_conformance.subjects.interfaces import conventional_meaning

_SELDOM_MEANT: Collection[FindingKind] = (
    *("parameter-unused", "parameter-of-no-step", "parameter-without-effect", "parameters-tied", "part-never-called"),
    *("parameter-read-twice", "parameter-misnamed", "parameter-not-read", "heads-denied"),
    *("mask-name-reversed", "masks-exchanged", "mask-hides-nothing", "mask-ignored", "mask-hides-in-part"),
)
"""Warnings of what a module has and does not use as its names say."""


def choices(layer: Layer) -> str:
    """`post-norm layer_norm ε 1e-05, relu, D = 64, H = 4, F = 128, 3 layers`."""
    heads, d_ff, norm, stack = layer.attention.num_heads, layer.feed_forward.d_ff, layer.norm, layer.stack
    text = f"{norm.placed} {norm.kind} ε {norm.epsilon:.6g}, {layer.feed_forward.activation}"
    text = ", ".join([text, *more_choices(layer), f"D = {layer.d_model}, H = {heads}, F = {d_ff}"])
    more = f", {stack.layers} layers" if stack.layers > 1 else ""
    return text + more + (", final norm" if stack.final_norm else "")


@dataclass(frozen=True)
class ClosingLine:
    """`of`: what it says, in a word: verdict, cause, place, checks, form or next. `status`: of what it is a verdict."""

    of: str
    text: str
    status: int | None = None


def closing(part: PartResult, before: Sequence[PartResult] = ()) -> Iterator[ClosingLine]:
    """Line by line, the verdict first. `before`: parts of the same model that were shown, whose causes are known."""
    yield ClosingLine("verdict", verdict(part), part.alone)
    for text in causes(part, before):
        yield ClosingLine("cause", text)
    if part.alone and (place := _place(part)):
        yield ClosingLine("place", f"At: {place}")
    if covered := _covered(part):
        yield ClosingLine("checks", covered)
    for each in part.variants:
        yield ClosingLine("form", of_variant(each), each.status)
    tallies = part.tally, *(each.tally for each in part.variants)
    if any(each.unexpected for each in tallies):  # what is wrong may be no check's
        yield ClosingLine("next", "Next: the same command with -v shows each check that fails.")


def verdict(part: PartResult) -> str:
    """What it is, and as what; never that it is right where nobody said what it should be."""
    layer = part.layer
    if layer is None and part.described.is_two_answers:
        return "It gives two answers to one question, which no layer does. It was not judged further."
    if layer is None and part.unlike and part.described.stated is not None:
        return f"This is not {part.described.stated.layer}: {part.unlike[0].message}. It was not asked: see above."
    if layer is None or part.alone == 2:
        beyond = part.described.not_read is not None and part.described.not_read.beyond
        hint = "" if part.as_told or beyond else " To have it compared with a layer, pass --layer NAME."
        return f"It could not be judged: see above.{hint}"
    if part.as_told and part.alone:
        return f"This is not {layer.layer}: {_numbers(part)}{_but(part)}."
    if part.as_told:
        return f"This is {layer.layer} ({choices(layer)})."
    if part.alone:
        return f"This layer is wrong, read as {choices(layer)}: {_numbers(part)}{_but(part)}."
    kind, _, rest = choices(layer).partition(" ")
    return f"This is a correct {kind} layer ({rest}). It was not compared with a reference: pass --layer NAME."


def of_model(result: CheckResult) -> str:
    """The verdict on what is around the parts that were judged, where that is wrong; "" where it is not known to be."""
    wrong = next((each for each in result.of_whole if each.severity == "error"), None)
    return f"{result.target} is wrong around these parts: {wrong.message}." if wrong else ""


def around(result: CheckResult) -> str:
    """What was not asked of a target of which parts were judged; "" where it was judged itself, or nothing was."""
    if not any(part.at and part.layer is not None for part in result.parts):
        return ""
    why = f" It was not judged itself: {result.whole}." if result.whole else ""
    asked = (each.about for each in result.of_whole if each.about.get("effect", "refused") != "refused")
    names = dict.fromkeys(str(about["argument"]) for about in asked)
    warnings = [each for each in result.of_whole if each.severity == "warning"]
    warned = f" ({len(warnings)} warning{'s' * (len(warnings) != 1)}: see above)" if warnings else ""
    masks = f", but for what {listed([*names])} hide{'s' * (len(names) == 1)}{warned}" if names else ""
    what = f"what it does before, between and after them was not asked{masks}"
    others = f" Not judged: {in_short(result.beside)}, which may be layers, too." if result.beside else ""
    return f"Judged are these parts of {result.target}: {what}.{others}{why}"


def of_variant(variant: VariantResult) -> str:
    """Whether the variant is the layer, too."""
    match variant.status:
        case 0:
            return f"{variant.word}: the same, up to {_sizes(variant)}, forward alone."
        case 1:
            return f"{variant.word} is wrong: {_wrong_in(variant)}."
    return f"{variant.word} was not judged: {variant.problem or 'nothing could be asked'}."


def _wrong_in(variant: VariantResult) -> str:
    """How many of its outputs differ, by how much and where first; and how many there are not."""
    tally, without = variant.tally, len(variant.unanswered)
    of = f"of {tally.applicable}"
    failing = f"{without} {of} calls give no output (why: above)"
    if not (apart := tally.unexpected - without):
        return failing
    size = error_size(variant.records, f"σ of {variant.format}")
    stage = f"; first stage apart: {variant.first_stage}" if variant.first_stage else ""
    more = f"; {failing}" if without else ""
    return f"{apart} {of} outputs differ{size and f', {size}'}{stage}{more}"


def _sizes(variant: VariantResult) -> str:
    lengths, items = (max(map(max, each)) for each in zip(*((e.lengths, e.items) for e in variant.asked), strict=True))
    return f"{lengths} positions and {items} items"


def _covered(part: PartResult) -> str:
    """What a verdict that it is right covers, and what no verdict does."""
    without = [f"it was asked without {', '.join(part.without)}"] if part.without else []
    warnings = [_warned(part.warnings)] if part.warnings else []
    if part.layer is None or part.alone == 2:
        return ""
    if part.alone:
        return "; ".join([*without, *warnings])
    if part.like:
        return f"It is like {part.like}, which was asked in its place."
    return "; ".join([f"{_numbers(part)}, {up_to(part.asked)}, {_given(part)}", *without, *warnings]) + "."


def _warned(warnings: Sequence[Finding]) -> str:
    """`2 warnings: attention.scale is 1/√d_model = 1/√48, which no published encoder known here has`: how many, and
    the one that is least likely meant, if any may not be."""
    count = f"{len(warnings)} warning{'s' * (len(warnings) != 1)}"
    doubted = [(doubt, each) for each in warnings if (doubt := _doubt(each)) is not None]
    if not doubted:
        return count
    first = min(doubted, key=lambda each: each[0])[1]
    named = first.message.partition(":")[0] if first.kind == "choice-of-its-own" else first.message.partition(";")[0]
    return f"{count}: {named}"


def _doubt(finding: Finding) -> int | None:
    """The less, the less likely it was meant; None for what may well be. What fills a mask is most often no slip, and
    what is thrown away always one."""
    if finding.kind in _SELDOM_MEANT:
        return 0
    if finding.kind == "fill-thrown-away":
        return -1
    if finding.kind == "choice-of-its-own":
        return 3 if all(str(each).startswith("mask-") for each in _deviations_of(finding)) else 1
    return 2 if _is_unusual(finding) else None


def _deviations_of(finding: Finding) -> list[object]:
    named = finding.about["deviations"]
    return named if isinstance(named, list) else [named]


def _is_unusual(finding: Finding) -> bool:
    """Whether a choice is of no published encoder by itself, and not by what it stands beside."""
    return finding.kind == "unusual-choice" and finding.about.get("choice") != COMBINATION


def _numbers(part: PartResult) -> str:
    """How many checks passed, and how large the largest error is."""
    tally, size = part.tally, error_size(part.records, f"σ ({SIGMA})")
    declared = f", {tally.deviating} of them with declared deviations" if tally.deviating else ""
    return f"{tally.as_expected} of {tally.applicable} checks pass{declared}{size and f', {size}'}"


def _but(part: PartResult) -> str:
    """What is wrong beside the checks, where all of them pass."""
    return f", but {part.errors[0].message.rstrip('.')}" if part.errors and not part.tally.unexpected else ""


def _given(part: PartResult) -> str:
    named = [_named(mask, part.described) for mask in part.described.masks]
    masks = named if any(each.longest_masked for each in part.asked) else []
    given = f"with {listed(masks)} and without" if masks else "without masks"
    attention = f", by {part.described.attention} attention" if part.described.attention else ""
    back = "" if any("gradients" in each.checks for each in part.asked) else ", forward alone"
    dropout = ", without what it drops in training" if drops_unasked(part) else ""
    return f"{given}{attention}{back}{dropout}"


def _named(mask: MaskArgument, described: ModuleDescription) -> str:
    """Its name, or its place in a tuple with x, and the meaning that it was found to have, where that is known of no
    mask of this name."""
    conventional = conventional_meaning(mask.argument, described.framework)
    name = f"item {mask.argument} of {described.x.argument}" if mask.argument.isdigit() else mask.argument
    is_known = mask.counted or mask.meaning == "additive" or conventional is not None
    return name if is_known else f"{name} ({MEANINGS[mask.meaning]})"


def causes(part: PartResult, before: Sequence[PartResult] = ()) -> Iterator[str]:
    """One line a cause, however many formats show it; of one that a part before shows, that it is the same."""
    known = {key: each.at for each in reversed(before) for key in _by_cause(each)}
    for key, several in _by_cause(part).items():
        if key in known:
            yield f"Cause: the same as in {known[key]}"
        else:
            best = min(several, key=lambda each: each.confidence != "explained")
            alike = [each.dtype for each in several if each.confidence == best.confidence]
            less = [f"closest in {each.dtype}" for each in several if each.confidence != best.confidence]
            yield _cause(best, "; ".join([listed(alike), *less]))
    if not part.diagnoses and (raised := _raised(part.records)):
        yield raised


_ALIKE = 60
"""Characters of an error behind which it may be of other sizes."""


def _raised(records: Sequence[Record]) -> str:
    """What a module raises where nothing else is wrong than that it raises, in one way; "" where that is not so."""
    failed = [record for record in records if record.outcome not in EXPECTED]
    errors = {record.message.partition(": ")[2][:_ALIKE] for record in failed if record.outcome is Outcome.ERROR}
    if len(errors) != 1 or "" in errors or any(record.outcome is not Outcome.ERROR for record in failed):
        return ""
    asked = dict.fromkeys(record.check for record in failed)
    said = failed[0].message.splitlines()[0].partition(": ")[2]
    return f"Cause: it gives no {' and no '.join(asked)}: {said}"


def _by_cause(part: PartResult) -> dict[tuple[object, ...], list[Diagnosis]]:
    """What tells causes apart → the diagnoses of it, one a format."""
    found: dict[tuple[object, ...], list[Diagnosis]] = {}
    for each in part.diagnoses:
        equations = tuple((one.stage, one.found) for one in each.equations)
        sure = "" if each.deviations or equations else each.confidence
        key = (sure, each.of, each.deviations, each.sentences, equations, each.first_stage, each.fault)
        found.setdefault(key, []).append(each)
    return found


def _cause(found: Diagnosis, formats: str) -> str:
    if found.confidence != "explained" or not found.deviations or found.by_size or found.of != "forward":
        return f"{HEADINGS[found.confidence]}: {diagnosis_rest(found)} [{formats}]"
    names = f"{' and '.join(found.deviations)}, {format_sigma(found.rms or 0)} σ, {formats}"
    alike = [" and ".join(each) for each in found.indistinguishable]
    others = f" These cases cannot distinguish it from {listed(alike)}." if alike else ""
    stage = f" First wrong stage: {found.first_stage}." if found.first_stage else ""
    return f"{HEADINGS['explained']}: {' '.join(found.sentences).rstrip('.')} ({names}).{stage}{others}"


_KEYS: Mapping[str, tuple[str, ...]] = {
    "attention.position_bias": ("buckets-", "position-bias-"),
    "attention.appended_key": ("appended-key-",),
}
"""Key of the layer → what the names of the deviations begin with that are of it."""


def _place(part: PartResult) -> str:
    """The line of source of the first error that has one, of what could not be judged that which says why; else of what
    is no layer's, or is read in another's place, which comes first where nothing explains what fails; or, where there
    is no error, of another warning; else of a key in which it is another, of the mask or the numbers by distance that
    are the cause, or of the first stage that is wrong."""
    described = part.described
    leading = [each for each in part.warnings if each.kind in ("layer-not-read", "parameter-read-twice")]
    others = [] if part.errors else [each for each in part.warnings if each not in leading]
    errors = sorted(part.errors, key=lambda each: part.alone == 2 and each.kind != "layer-not-read")
    unexplained = bool(part.diagnoses) and all(each.confidence == "unknown" for each in part.diagnoses)
    first = (*leading, *errors) if unexplained else (*errors, *leading)
    for finding in (*first, *others):
        if source := finding.about.get("source"):
            return f"{source['file']}:{source['line']}"
    read, stated = described.layer, described.stated
    keys = [key for key, _, _ in differences(read, stated)] if read is not None and stated is not None else []
    stages = [each.first_stage for each in part.diagnoses if each.first_stage]
    stages += [one.stage for each in part.diagnoses if each.of == "backward" for one in each.equations]
    of_masks = _is_of(("mask-", "appended-key-hidden"), part.diagnoses)
    masks = [argument_key(mask.argument) for mask in described.masks] if of_masks else []
    own = [key for key, prefixes in _KEYS.items() if _is_of(prefixes, part.diagnoses)]
    names = [*keys, *masks, *own, *(name for stage in stages for name in _of_stage(described, stage))]
    return next((described.lines[name] for name in names if name in described.lines), "")


def _is_of(prefixes: str | tuple[str, ...], diagnoses: Sequence[Diagnosis]) -> bool:
    """Whether all that explains it is of one kind of deviations, whose names begin so: as what a mask makes of scores
    that it hides."""
    named = [name for each in diagnoses for name in each.deviations]
    return bool(named) and all(name.startswith(prefixes) for name in named)


def _of_stage(described: ModuleDescription, stage: str) -> Iterator[str]:
    """The own parameters of a stage, and the keys of the layer that make it so; none of `output`, which all make."""
    step = stage.rpartition(".")[2]
    if step == "output":
        return
    of_ffn = {"ffn_hidden": "feed_forward.hidden", "ffn_output": "feed_forward.output"}
    part = {"attention_output": "attention.output", **of_ffn}.get(step, step)
    for name, own in described.own_names.items():
        if name.rpartition(".")[0].endswith(part):
            yield own
    yield from {"scores": ("attention.scale",), "ffn_activation": ("feed_forward.activation",)}.get(step, ())
