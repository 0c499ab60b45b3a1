"""The findings of a module beside its numbers: what is unusual, tied, unused, unproved, and other than stated."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from encoder_conformance.commands.check.arguments import argument_findings, reference_findings
from encoder_conformance.commands.check.maps import map_findings
from encoder_conformance.oracle.layer_differences import OF_MASKS, differences
from encoder_conformance.protocol.description import ModuleDescription, as_text
from encoder_conformance.protocol.findings import Finding, Severity
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.spec.published import unusual
from encoder_conformance.spec.words import listed

_NEEDLESS = "attention.key.bias"
_SEVERITIES: Mapping[str, Severity] = {"fail": "error", "unusual": "warning", "not-asked": "note"}
_SOFTMAX = "a softmax does not change where all scores of a query move alike"


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
        *argument_findings(described, reference if stated else None),
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
            yield Finding(severity=_SEVERITIES[answer.outcome], message=answer.message)


def _of_ways(described: ModuleDescription) -> Iterator[Finding]:
    if described.wrappers:
        message = (
            f"it was given in {', '.join(described.wrappers)}: that and the module in it, which is read, are asked"
        )
        yield Finding(severity="note", message=message)
    if described.left_out:
        message = (
            f"the whole was given in {', '.join(described.left_out)}: this part is asked by itself, and not in that"
        )
        yield _warning(message, "what was compiled together is judged where the layer alone is compiled, and named")
    for other in described.other_answers:
        given = f" where {', '.join(other.masks)} is given" if other.masks else ""
        message = f"{other.way} differ: its outputs are {other.apart:.2g} of their size apart{given}"
        yield Finding(severity="error", message=message, hint="it is judged as it was given")


def _of_formats(described: ModuleDescription, dtypes: Sequence[str]) -> Iterator[Finding]:
    """In which format it was asked that was not given in a wide one, and that copies are not as it was given."""
    if (given := described.as_given) is None:
        return
    held = [f"{format} ({_some(names)})" for format, names in described.formats.items()]
    parameters = listed(held) if len(held) > 1 else next(iter(described.formats))
    how = f"it is asked in {given}, as it was given" if given in dtypes else "it is not asked as it was given"
    others = [dtype for dtype in dtypes if dtype != given]
    copies = f", and a copy of it is asked in {listed(others)}" if others else ""
    yield Finding(severity="note", message=f"its parameters are in {parameters}: {how}{copies}")


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _of_chance(described: ModuleDescription) -> Iterator[Finding]:
    if (chance := described.chance) is not None:
        how = "it answers at random" if chance.drawn else "it does not answer again as it did before"
        seen = f", first in {chance.seen}" if chance.seen else ""
        message = f"{how}: two outputs for one x differ by {chance.apart:.2g} of their size{seen}"
        hint = "in evaluation an output depends on x, masks and weights alone"
        if chance.drawn:
            hint += ": is there a dropout that eval() does not reach, or a weight that is drawn in each call?"
        yield Finding(severity="error", message=message, hint=hint)


def _of_kept(described: ModuleDescription) -> Iterator[Finding]:
    """What a call leaves behind: wrong where later answers depend on it, and worth a word where none does."""
    if (kept := described.kept) is None:
        return
    when = "by its first call" if kept.once else "by each call"
    changed = f"{listed(kept.names)} {'are' if len(kept.names) > 1 else 'is'} changed {when}" + (
        f" ({kept.by})" if kept.by else ""
    )
    if kept.apart:
        message = f"its answers depend on earlier calls: two outputs for one x differ by {kept.apart:.2g} of their size"
        hint = "in evaluation an output depends on x, masks and weights alone; it is judged as before its first call"
        yield Finding(severity="error", message=f"{message}; {changed}", hint=hint)
    elif kept.once:
        yield Finding(severity="note", message=f"{changed}, and no output that was asked depends on it")
    else:
        hint = "two calls at once write into the same, and of a buffer a checkpoint differs after each evaluation"
        yield _warning(f"{changed}, and no output that was asked depends on it", hint)


def _of_registration(described: ModuleDescription, part: bool) -> Iterator[Finding]:
    if described.unregistered:
        names = ", ".join(described.unregistered)
        message = f"it computes with weights that it does not register: {names}"
        hint = "no optimiser trains them and no state_dict has them: keep modules in nn.ModuleList or nn.ModuleDict"
        yield Finding(severity="warning" if part else "error", message=message, hint=hint)
    if described.loose_tensors and not described.parameters:
        message = f"it computes with tensors that are no parameters: {', '.join(described.loose_tensors)}"
        yield _warning(message, "a weight is an nn.Parameter, and registered")


def _of_choices(described: ModuleDescription, declared: bool) -> Iterator[Finding]:
    read, stated = described.layer, described.stated
    if read is not None and stated is not None:
        for key, expected, value in differences(read, stated):
            if key in OF_MASKS:
                continue
            where = _line(described, key)
            message = f"{key} is {as_text(value)} in the module{where}, and {as_text(expected)} in {stated.layer}"
            hint = "judged with the deviations that are declared" if declared else ""
            yield Finding(severity="warning" if declared else "error", message=message, hint=hint)
    elif read is not None:
        for each in unusual(read):
            hint = "if intended, pass --layer; otherwise fix it"
            yield _warning(str(each), hint)


def _of_parameters(described: ModuleDescription) -> Iterator[Finding]:
    yield from _of_places(described)
    yield from _of_values(described)
    read_elsewhere = {other for _, _, other in described.read_twice}
    for own in described.unused:
        if own in read_elsewhere:
            continue
        if own in described.idle_here:
            message = f"what {described.given_by} makes of {own} changes nothing where it is called with ids alone"
            yield _warning(message, "it was not asked where other inputs of the model make more of it")
        else:
            yield _warning(f"the parameter {own} changes nothing in the layer that was read")
    yield from _of_absent(described)
    for own, name in described.unread:
        beside = f"{own.rpartition('.')[0]}.weight"
        where = _line(described, beside)
        yield _warning(f"{own} is read nowhere{where}, and sounds like {name}, which it is judged as")
    for name in described.proof.inert if described.proof else ():
        if not name.endswith(_NEEDLESS):
            yield _warning(f"{name} changes nothing, in the module as in the oracle")


def _of_places(described: ModuleDescription) -> Iterator[Finding]:
    """Parameters that are read in a place other than their names say."""
    for own, place, other in described.read_twice:
        line = _line(described, own)
        message = f"{own} is read for {place} too{line}, and {other}, which sounds like it, is read nowhere"
        yield _warning(message, f"it is judged with {other} as {place}")
    for own, place, sounds in described.misnamed:
        stated = described.stated is not None and described.searched is None
        severity: Severity = "error" if stated or _exchanged(described, place, sounds) else "warning"
        message = f"{own} does the work of {place}, and its name is that of {sounds}{_line(described, own)}"
        hint = "are two of them swapped? Their numbers alone cannot tell"
        yield Finding(severity=severity, message=message, hint=hint)


def _exchanged(described: ModuleDescription, place: str, sounds: str) -> bool:
    """Whether query and key have each other's names: one name alone may be another's idea of it."""
    both = (each[1:] for each in described.misnamed)
    return "query" in place + sounds and "key" in place + sounds and (sounds, place) in both


def _line(described: ModuleDescription, *names: str) -> str:
    """` (model.py:12)`, the first of these that has one; "" where none has."""
    found = next((described.lines[name] for name in names if name in described.lines), "")
    return f" ({found})" if found else ""


def _of_values(described: ModuleDescription) -> Iterator[Finding]:
    """Parameters that are others with something added, or one tensor with others."""
    for name, source in described.parameters.items():
        if source.more:
            hint = f"what another has as {name} is to be loaded less {source.more:g}"
            yield _warning(f"{name} is {source.own} + {source.more:g}", hint)
        if source.times != 1:
            hint = f"what another has as {name} is to be loaded divided by {source.times:g}"
            yield _warning(f"{name} is {source.own} × {source.times:g}", hint)
        if source.own in described.untrained:
            message = (
                f"{described.given_by} makes what it gives of {source.own} without a gradient: no training moves it"
            )
            yield _warning(message, f"the gradient by {name} is not judged")
    for alias, first in described.aliases.items():
        yield _warning(f"{alias} and {first} are one tensor")
    for one, other in described.tied:
        in_part = described.parameters[one].own != described.parameters[other].own
        same = "in part the same numbers" if in_part else "the same numbers"
        same += ", one transposed" if described.is_turned(one, other) else ""
        message = f"{one} and {other} are {same}: {described.parameters[one].own}"
        if described.stated is not None:  # a right output proves nothing: it was given the same numbers for both
            message += f", and two parameters in {described.stated.layer}"
        severity: Severity = "error" if described.stated is not None else "warning"
        hint = "their gradients cannot be distinguished, and are not judged"
        yield Finding(severity=severity, message=message, hint=hint)


def _of_absent(described: ModuleDescription) -> Iterator[Finding]:
    severity: Severity
    for name in described.absent:
        if name.endswith(_NEEDLESS):
            severity, note = "note", f" ({_SOFTMAX})"
        elif described.stated is not None:
            severity, note = "error", f", and {described.stated.layer} has"
        else:
            severity, note = "warning", ""
        hint = f"it is taken for {int(name.endswith('gain'))}"
        yield Finding(severity=severity, message=f"it has no {name}{note}", hint=hint)


def _of_inputs(described: ModuleDescription) -> Iterator[Finding]:
    if described.always_causal or described.causal:
        message = "without a mask no position sees a later one; it is judged with masks that say what is seen"
        if described.always_causal:
            message = "no position sees a later one, whatever masks it is given: it is judged with a causal mask"
        yield _warning(message, "an encoder sees both ways; a decoder does not")
    if described.across_batch and (described.chance is None or described.chance.drawn):
        hint = "look for what goes across the batch: attention, a norm, or one scale for all items"
        yield Finding(severity="error", message="an item of the batch changes another", hint=hint)
    if described.padded_item_is_nan:
        message = "an item that is padding alone gives NaN, and so does every gradient of its batch"
        hint = "keep such items out of the batch; their gradients are not judged"
        yield _warning(message, hint)


_STATE_IT = "say what it should be with --layer, and it is judged as that"


def _of_reading(described: ModuleDescription) -> Iterator[Finding]:
    if described.not_read is not None:
        where = f" ({described.not_read.where})" if described.not_read.where else ""
        severity: Severity = "warning" if described.stated else "error"
        hint = "" if described.stated or described.not_read.beyond else _STATE_IT
        yield Finding(severity=severity, message=f"{described.not_read.problem}{where}", hint=hint)
    if described.stated is not None and not described.parameters:
        message = f"no map of its parameters to those of {described.stated.layer} fits, by number and shape"
        yield Finding(severity="error", message=message, hint="is it that layer, and with these sizes?")
    if described.unplaced:
        names = ", ".join(described.unplaced)
        yield _warning(f"computed from several parameters, and so not to be given: {names}")
    yield from _of_heads(described)
    proof = described.proof
    if proof is not None and not proof.holds:
        wrong = f"; moved alone, these change something else: {', '.join(proof.wrong)}" if proof.wrong else ""
        message = f"the live module is not what was read off it: {proof.problem or 'see the parameters'}{wrong}"
        yield _warning(message)
    if described.searched is not None and described.searched.deviation is None:
        message = (
            f"none of {described.searched.maps} maps of its parameters, with any of {described.searched.deviations} "
            "deviations, gives its output: the map is by names and shapes alone"
        )
        yield _warning(message)
    if described.narrow_inside:
        message = "in float64 it is no more exact than in float32: something in it is cast. It is judged in float32"
        yield Finding(severity="note", message=message)
    for note in described.notes:
        yield Finding(severity="note", message=note)


def _of_heads(described: ModuleDescription) -> Iterator[Finding]:
    layer = described.stated or described.layer
    if layer is not None and not described.heads_known:
        message = "its number of heads is not known: no attribute says it, and neither its graph nor its channels tell"
        hint = "state it: --layer with a YAML file that has attention.num_heads and the other sizes"
        yield Finding(severity="error", message=message, hint=hint)
    elif layer is not None and described.heads_denied is not None:
        message = f"it computes with {layer.attention.num_heads} heads, and its attributes say {described.heads_denied}"
        yield _warning(message, "it is judged with the heads that it computes with")


def _warning(message: str, hint: str = "") -> Finding:
    return Finding(severity="warning", message=message, hint=hint)
