"""The findings of a module beside its numbers: what is unusual, tied, unused, unproved, and other than stated."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from encoder_conformance.commands.check.arguments import argument_findings, reference_findings
from encoder_conformance.commands.check.maps import map_findings
from encoder_conformance.commands.check.single_parameters import NEEDLESS, of_absent, of_values
from encoder_conformance.commands.check.tied import tied_findings
from encoder_conformance.commands.check.unused import unused_findings
from encoder_conformance.oracle.layer_differences import OF_MASKS, differences
from encoder_conformance.protocol.description import as_text, decimal
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Severity, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription, instead_of
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.spec.published import unusual
from encoder_conformance.spec.words import listed

_WAY_BACK: Mapping[str, tuple[Severity, FindingKind]] = {
    "fail": ("error", "way-back-wrong"),
    "unusual": ("warning", "way-back-unusual"),
    "not-asked": ("note", "way-back-not-asked"),
}


def findings_of(
    described: ModuleDescription,
    *,
    declared: bool = False,
    reference: ModuleDescription | None = None,
    part: bool = False,
) -> tuple[Finding, ...]:
    """`declared`: deviations were declared, and so a choice that differs is no error by itself: the numbers tell.

    `reference`: the module that the stated layer was read off. `part`: it is part of a model, which may register what
    the part does not.
    """
    stated = described.stated
    return (
        *answering_findings(described, described.dtypes),
        *_of_registration(described, part),
        *_of_choices(described, declared),
        *_of_parameters(described),
        *map_findings(described, reference),
        *_of_inputs(described),
        *(argument_findings(described, reference if stated else None) if described.chance is None else ()),
        *(reference_findings(described, reference, stated.layer) if stated and reference else ()),
        *_of_reading(described),
    )


def answering_findings(described: ModuleDescription, dtypes: Sequence[str]) -> Iterator[Finding]:
    """How it answers by the way in which it is called, and by chance. `dtypes`: the formats that it is asked in."""
    yield from _of_ways(described)
    yield from _of_formats(described, dtypes)
    yield from _of_chance(described)
    yield from _of_kept(described)


def of_way_back(answers: Iterable[WayBackAnswer]) -> Iterator[Finding]:
    """An error for each question about gradients that came out wrong, and a note of what could not be asked."""
    for answer in answers:
        if answer.outcome != "pass" and answer.message:
            severity, kind = _WAY_BACK[answer.outcome]
            about: dict[str, object] = {"question": answer.name, "distance": answer.distance}
            about |= {"source": answer.source} if answer.source else {}
            yield Finding(severity=severity, kind=kind, message=answer.message, about=about)


def _of_ways(described: ModuleDescription) -> Iterator[Finding]:
    if described.wrappers:
        message = (
            f"it was given in {', '.join(described.wrappers)}: that and the module in it, which is read, are asked"
        )
        about = {"wrappers": described.wrappers}
        yield Finding(severity="note", kind="given-in-wrapper", message=message, about=about)
    if described.left_out:
        message = (
            f"the whole was given in {', '.join(described.left_out)}: this part is asked by itself, and not in that"
        )
        hint = "what was compiled together is judged where the layer alone is compiled, and named"
        yield _warning("part-of-wrapper", message, hint, wrappers=described.left_out)
    if described.trains_unless_told:
        message = "called without training=False it drops, as in training: it was asked with it"
        hint = "give training the default False or None, and Dropout none of its own"
        yield _warning("training-by-default", message, hint)
    for other in described.other_answers:
        given = f" where {', '.join(other.masks)} is given" if other.masks else ""
        message = f"{other.way} differ: its outputs are {other.apart:.2g} of their size apart{given}"
        answer, hint = other.model_dump(), "it is judged as it was given"
        yield Finding(severity="error", kind="ways-of-calling-differ", message=message, hint=hint, about=answer)


def _of_formats(described: ModuleDescription, dtypes: Sequence[str]) -> Iterator[Finding]:
    """In which format it was asked that was not given in a wide one, and that copies are not as it was given."""
    if (given := described.as_given) is None:
        return
    held = [f"{format} ({_some(names)})" for format, names in described.formats.items()]
    parameters = listed(held) if len(held) > 1 else next(iter(described.formats))
    how = f"it is asked in {given}, as it was given" if given in dtypes else "it is not asked as it was given"
    others = [dtype for dtype in dtypes if dtype != given]
    copies = f", and a copy of it is asked in {listed(others)}" if others else ""
    message = f"its parameters are in {parameters}: {how}{copies}"
    about = {"formats": described.formats, "given": given, "asked": dtypes}
    yield Finding(severity="note", kind="formats-asked", message=message, about=about)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _of_chance(described: ModuleDescription) -> Iterator[Finding]:
    if (chance := described.chance) is not None:
        how = "it answers at random" if chance.drawn else "it does not answer again as it did before"
        seen = f", first in {chance.seen}" if chance.seen else ""
        seen += said_at(chance.where)
        message = f"{how}: two outputs for one x differ by {chance.apart:.2g} of their size{seen}"
        hint = "in evaluation an output depends on x, masks and weights alone"
        if chance.drawn:
            hint += ": is there a dropout that eval() does not reach, or a weight that is drawn in each call?"
        about: dict[str, object] = {"drawn": chance.drawn, "apart": chance.apart, "first_in": chance.seen or None}
        about |= source_of(chance.where)
        yield Finding(severity="error", kind="answers-not-repeatable", message=message, hint=hint, about=about)


def _of_kept(described: ModuleDescription) -> Iterator[Finding]:
    """What a call leaves behind: wrong where later answers depend on it, and worth a word where none does."""
    if (kept := described.kept) is None:
        return
    first = "by its first call with a mask" if kept.masked else "by its first call"
    when = first if kept.once else "by each call"
    changed = f"{listed(kept.names)} {'are' if len(kept.names) > 1 else 'is'} changed {when}" + (
        f" ({kept.by})" if kept.by else ""
    )
    about = {"names": kept.names, "once": kept.once, "apart": kept.apart}
    if kept.apart:
        message = f"its answers depend on earlier calls: two outputs for one x differ by {kept.apart:.2g} of their size"
        hint = "in evaluation an output depends on x, masks and weights alone; it is judged as before its first call"
        kind: FindingKind = "answers-depend-on-earlier-calls"
        message = f"{message}; {changed}"
        yield Finding(severity="error", kind=kind, message=message, hint=hint, about=about)
        return
    message, hint = f"{changed}, and no output that was asked depends on it", ""
    if not kept.once:
        hint = "two calls at once write into the same, and of a buffer a checkpoint differs after each evaluation"
    severity: Severity = "note" if kept.once else "warning"
    yield Finding(severity=severity, kind="state-changed-by-calls", message=message, hint=hint, about=about)


_REGISTERED_BY_PYTORCH = (
    "no optimiser trains them and no state_dict has them: keep modules in nn.ModuleList or nn.ModuleDict"
)
_REGISTERED = {"Keras": "fit does not train them and save_weights leaves them out: make them by add_weight"}
"""Framework → what its modules register."""


def _of_registration(described: ModuleDescription, part: bool) -> Iterator[Finding]:
    if described.unregistered:
        names = ", ".join(described.unregistered)
        message = f"it computes with weights that it does not register: {names}"
        hint = _REGISTERED.get(described.framework, _REGISTERED_BY_PYTORCH)
        severity: Severity = "warning" if part else "error"
        about = {"names": described.unregistered}
        yield Finding(severity=severity, kind="weights-not-registered", message=message, hint=hint, about=about)
    made = described.kept.names if described.kept is not None and described.kept.once else ()
    loose = [each for each in described.loose_tensors if each.partition("[")[0] not in made]
    if loose and not described.parameters:
        message = f"it computes with tensors that are no parameters: {', '.join(loose)}"
        hint = "a weight is an nn.Parameter, and registered"
        yield _warning("tensors-not-parameters", message, hint, names=loose)


def _of_choices(described: ModuleDescription, declared: bool) -> Iterator[Finding]:
    read, stated = described.layer, described.stated
    if read is not None and stated is not None:
        for key, expected, value in differences(read, stated):
            if key in OF_MASKS:
                continue
            where = _line(described, key)
            message = f"{key} is {as_text(value)} in the module{where}, and {as_text(expected)} in {stated.layer}"
            hint = "judged with the deviations that are declared" if declared else ""
            severity: Severity = "warning" if declared else "error"
            values = {"found": decimal(value), "stated": decimal(expected)}
            about = {"key": key, **values, "layer": stated.layer, **_source(described, key)}
            yield Finding(severity=severity, kind="choice-differs", message=message, hint=hint, about=about)
    elif read is not None:
        for each in unusual(read):
            hint = "if intended, pass --layer; otherwise fix it"
            message = each.at(_line(described, each.choice))
            yield _warning("unusual-choice", message, hint, choice=each.choice, **_source(described, each.choice))


def _of_parameters(described: ModuleDescription) -> Iterator[Finding]:
    yield from _of_idle_parts(described)
    yield from _of_places(described)
    yield from of_values(described)
    yield from tied_findings(described)
    yield from unused_findings(described, described.unused)
    yield from of_absent(described)
    for own, name in described.unread:
        beside = f"{own.rpartition('.')[0]}.weight"
        where = _line(described, beside)
        message, source = f"{own} is read nowhere{where}, and sounds like {name}", _source(described, beside)
        yield _warning(
            "parameter-not-read", f"{message}, which it is judged as", "", name=own, parameter=name, **source
        )
    for name in described.proof.inert if described.proof else ():
        if not name.endswith(NEEDLESS):
            message = f"{name} changes nothing, in the module as in the oracle"
            yield _warning("parameter-without-effect", message, parameters=[name])


def _of_idle_parts(described: ModuleDescription) -> Iterator[Finding]:
    """An error where another part does its work in two places: nobody makes a part to have it replaced."""
    for path, beside in described.idle_parts:
        message = f"the part {path} is called nowhere"
        at = described.lines.get(instead_of(path)) or described.lines.get(beside, "")
        message += f", and {beside} is read in two places{said_at(at)}" if beside else ""
        severity: Severity = "error" if beside else "warning"
        about: dict[str, object] = {"name": path}
        about |= {"beside": beside, **source_of(at)} if beside else {}
        yield Finding(severity=severity, kind="part-never-called", message=message, about=about)


def _of_places(described: ModuleDescription) -> Iterator[Finding]:
    """Parameters that are read in a place other than their names say."""
    for own, place, other in described.read_twice:
        line = described.line_of_reading(own, place)
        message = f"{own} is read for {place} too{said_at(line)}, and {other}, of the same size, is read nowhere"
        about = {"name": own, "parameter": place, "instead_of": other, **source_of(line)}
        yield _warning("parameter-read-twice", message, f"it is judged with {other} as {place}", **about)
    for own, place, sounds in described.misnamed:
        stated = described.stated is not None and described.searched is None
        severity: Severity = "error" if stated or _exchanged(described, place, sounds) else "warning"
        message = f"{own} does the work of {place}, and its name is that of {sounds}{_line(described, own)}"
        hint = "are two of them swapped? Their numbers alone cannot tell"
        about = {"name": own, "parameter": place, "sounds_like": sounds, **_source(described, own)}
        yield Finding(severity=severity, kind="parameter-misnamed", message=message, hint=hint, about=about)


def _exchanged(described: ModuleDescription, place: str, sounds: str) -> bool:
    """Whether two of query, key and value, or a gate and what it gates, have each other's names: one name alone may be
    another's idea of it. What has a value's name before the weights is none behind them, whatever has its place."""
    both, parts = (each[1:] for each in described.misnamed), place + sounds
    of_heads = [part for part in ("query", "key", "value") if part in parts]
    pair = len(of_heads) == 2 or ("gate" in parts and "hidden" in parts)
    return (pair and (sounds, place) in both) or ("attention.output" in place and "attention.value" in sounds)


def _line(described: ModuleDescription, *names: str) -> str:
    """` (model.py:12)`, the first of these that has one; "" where none has."""
    found = next((described.lines[name] for name in names if name in described.lines), "")
    return said_at(found)


def _source(described: ModuleDescription, name: str) -> dict[str, object]:
    """`source`, the line that reads an own parameter, or makes a key of the layer so; {} where it is not known."""
    return source_of(described.lines.get(name, ""))


_CAUSAL = "it is judged with a causal mask"


def _of_inputs(described: ModuleDescription) -> Iterator[Finding]:
    if described.always_causal or described.causal:
        message = "without a mask no position sees a later one; it is judged with masks that say what is seen"
        if described.always_causal:
            message = f"no position sees a later one, whatever masks it is given: {_CAUSAL}"
        hint = "an encoder sees both ways; a decoder does not"
        if described.causal_unless:
            message = f"no position sees a later one unless {described.causal_unless} is false: {_CAUSAL}"
            hint = f"--with {described.causal_unless}=False has it judged so"
        kind: FindingKind = "causal-built-in" if described.always_causal else "causal-without-mask"
        yield _warning(kind, message, hint)
    if described.across_batch and (described.chance is None or described.chance.drawn):
        hint = "look for what goes across the batch: attention, a norm, or one scale for all items"
        message, kind = "an item of the batch changes another", "items-influence-each-other"
        yield Finding(severity="error", kind=kind, message=message, hint=hint)
    if described.padded_item_is_nan:
        message = "an item that is padding alone gives NaN, and so does every gradient of its batch"
        hint = "keep such items out of the batch; their gradients are not judged"
        yield _warning("fully-masked-rows-undefined", message, hint)
    if described.padded_item_raises:
        message = f"an item that is padding alone is refused: {described.padded_item_raises}"
        hint = "keep such items out of the batch; they are not asked"
        yield _warning("fully-masked-rows-undefined", message, hint)


_STATE_IT = "say what it should be with --layer, and it is judged as that"


def _of_reading(described: ModuleDescription) -> Iterator[Finding]:
    if described.not_read is not None and described.chance is None:  # what is drawn stands in the graph as a step
        severity: Severity = "warning" if described.stated else "error"
        settled = described.stated or described.not_read.beyond or described.is_two_answers
        hint = "" if settled else _STATE_IT
        message = f"{described.not_read.problem}{said_at(described.not_read.where)}"
        yield Finding(
            severity=severity, kind="layer-not-read", message=message, hint=hint, about=described.not_read.about
        )
    if described.stated is not None and not described.parameters:
        message = f"no map of its parameters to those of {described.stated.layer} fits, by number and shape"
        hint, about = "is it that layer, and with these sizes?", {"layer": described.stated.layer}
        yield Finding(severity="error", kind="no-parameter-map", message=message, hint=hint, about=about)
    yield from _of_heads(described)
    proof = described.proof
    if proof is not None and not proof.holds:
        wrong = f"; moved alone, these change something else: {', '.join(proof.wrong)}" if proof.wrong else ""
        message = f"the live module is not what was read off it: {proof.problem or 'see the parameters'}{wrong}"
        yield _warning("not-what-was-read", message, wrong=proof.wrong, rms=proof.rms)
    if described.searched is not None and described.searched.deviation is None:
        message = (
            f"none of {described.searched.maps} maps of its parameters, with any of {described.searched.deviations} "
            "deviations, gives its output: the map is by names and shapes alone"
        )
        searched = described.searched
        yield _warning("map-not-found", message, maps=searched.maps, deviations=searched.deviations)
    if described.epsilon_of_format:
        message = (
            "its norms were given no epsilon, and take that of the format, finfo(dtype).eps, which is another in each"
        )
        yield Finding(severity="note", kind="epsilon-of-the-format", message=f"{message}. It is judged in float32")
    elif described.narrow_inside:
        why = "something in it is cast, or a number in it has no more digits"
        message = f"in float64 it is no more exact than in float32: {why}. It is judged in float32"
        yield Finding(severity="note", kind="float64-no-more-exact", message=message)
    yield from described.notes


def _of_heads(described: ModuleDescription) -> Iterator[Finding]:
    layer = described.stated or described.layer
    if layer is not None and not described.heads_known:
        message = "its number of heads is not known: no attribute says it, and neither its graph nor its channels tell"
        hint = "state it: --layer with a YAML file that has attention.num_heads and the other sizes"
        yield Finding(severity="error", kind="heads-not-known", message=message, hint=hint)
    elif layer is not None and described.heads_denied is not None:
        message = f"it computes with {layer.attention.num_heads} heads, and its attributes say {described.heads_denied}"
        about = {"heads": layer.attention.num_heads, "said": described.heads_denied}
        yield _warning("heads-denied", message, "it is judged with the heads that it computes with", **about)


def _warning(kind: FindingKind, message: str, hint: str = "", **about: object) -> Finding:
    return Finding(severity="warning", kind=kind, message=message, hint=hint, about=about)
