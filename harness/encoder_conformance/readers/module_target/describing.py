"""Describes an examination for the harness."""

from collections.abc import Iterable, Iterator
from typing import Any

from encoder_conformance.protocol.arguments import LAYOUTS, MaskArgument, UnusableMask, XArgument, axes_text
from encoder_conformance.protocol.findings import Finding, NotRead
from encoder_conformance.protocol.module_description import (
    ModuleDescription,
    ModuleSource,
    instead_of,
    read_for,
)
from encoder_conformance.readers.module_target.argument_lines import lines_of_arguments
from encoder_conformance.readers.module_target.calling import is_random
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.forms_of_x import FORMS
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.naming import idle_parts, misnamed
from encoder_conformance.readers.onnx_file.tracing.unstatable import BEYOND
from encoder_conformance.readers.onnx_file.tracing.unsupported import SENTENCES


def described(found: Examination) -> ModuleDescription:
    """The description but for the source of an adapter, which crosses the border as a tensor."""
    exported, semantics, sources = found.exported, found.semantics, _sources(found)
    idle = [*idle_parts(found.module.idle_parts, found.tied, sources, found.module.heard)]
    return ModuleDescription(
        layer=found.layer,
        facts=exported.facts,
        type=found.module.type_name,
        framework=found.framework.name,
        versions=found.versions,
        x=_x(found),
        masks=_masks(found),
        **_of_arguments(found, idle),
        causal=semantics.causal,
        always_causal=found.always_causal,
        causal_unless=found.causal_unless,
        across_batch=semantics.across_batch,
        stated=found.stated,
        notes=(*_notes(found), *found.notes),
        not_read=_not_read(found),
        unplaced=exported.unplaced,
        parameters=sources,
        absent=found.absent,
        unused=_unused(found),
        of_no_step=found.of_no_step,
        aliases=dict(found.module.aliases),
        **_of_twice(found, idle),
        untrained=found.module.untrained,
        misnamed=_misnamed(found, sources),
        proof=found.proof,
        searched=found.searched,
        **_answering(found),
        stages={stage: place.module for stage, place in found.stages.items()},
        dtypes=found.taken,
        formats=_formats(found),
        as_given=found.as_given,
        narrow_inside=found.narrow_inside,
        epsilon_of_format=found.epsilon_of_format,
        adapter="",
    )


def _of_twice(found: Examination, idle: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Which parameters are read in two places, or in none. `idle`: as of arguments."""
    twice = found.read_twice
    return {
        "idle_parts": tuple((path, own) for path, own, _ in idle),
        "tied": found.tied,
        "read_twice": tuple((_called(found, own), place, _called(found, other)) for own, place, other in twice),
        "wrong_by_that_alone": found.wrong_by_that_alone,
        "unread": found.unread,
    }


def _unused(found: Examination) -> tuple[str, ...]:
    """Own parameters that the layer has no place for, but for those in whose place another is read."""
    instead = {other for _, _, other in found.read_twice}
    return tuple(own for own in found.map.unused() if own not in instead) if found.map else ()


def _called(found: Examination, own: str) -> str:
    """What its owner calls a parameter."""
    return found.module.heard.get(own, own)


def _misnamed(found: Examination, sources: dict[str, ModuleSource]) -> tuple[tuple[str, str, str], ...]:
    """None of a map that goes by names, and that no output proves."""
    if found.searched is not None and found.searched.deviation is None:
        return ()
    return tuple(misnamed({name: _called(found, each.own) for name, each in sources.items()}))


def _notes(found: Examination) -> tuple[Finding, ...]:
    """Those of the graph, but for numbers of it that are the marks of parameters and not their own; what a file is
    warned of is no more than a fact of a module, whose graph is made here."""
    marked = "score-scale-unusual" if found.of_no_step else ""
    kept = (each for each in found.exported.notes if each.kind != marked)
    return tuple(each.model_copy(update={"severity": "note", "hint": ""}) for each in kept)


def _not_read(found: Examination) -> NotRead | None:
    exported = found.exported
    if not exported.problem:
        return None
    beyond = any(feature in BEYOND for feature in exported.features)
    sentence, _ = SENTENCES[exported.features[0]] if exported.features else ("", "")
    return NotRead(
        problem=exported.problem, where=exported.where, beyond=beyond, features=exported.features, sentence=sentence
    )


def _before_x(module: LiveModule) -> str:
    """The argument that stands first in the place of x; "" where x does, and where that is a key of random numbers, as
    many functions of JAX have one."""
    first = next(iter(module.signature.places), "") if module.signature.named else ""
    return "" if module.draws_of_keys and is_random(first) else first


def _of_arguments(found: Examination, idle: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Which arguments it was not given, or could not be, and which its model makes. `idle`: parts that no call reaches,
    what is read instead of each, and for which place."""
    offered, lines = found.offered, found.exported.lines
    instead = {instead_of(path): lines[read_for(place)] for path, _, place in idle if read_for(place) in lines}
    return {
        "unusable_masks": tuple(_as_seen(found, offered.unusable)) if offered else (),
        "ungiven_arguments": offered.ungiven if offered else (),
        "given": found.given,
        "given_by": found.given_by,
        "lengths": found.lengths,
        "lines": {**lines, **instead, **_lines_as_heard(found), **_lines_of_masks(found)},
        "called": found.module.signature.arrangement.said,
        "attention": found.module.attention,
    }


def _as_seen(found: Examination, unusable: Iterable[UnusableMask]) -> Iterator[UnusableMask]:
    """What masks do whose sign is wrong, by what a softmax makes of scores: without one a key that is lowered counts,
    too, and no sign is known."""
    told = "no_softmax" not in found.exported.features
    for each in unusable:
        signed = each.kind in ("raises", "flipped")
        yield each if told or not signed else each.model_copy(update={"kind": "elsewhere"})


def _lines_as_heard(found: Examination) -> dict[str, str]:
    """The lines of own parameters, by the names by which these are told."""
    heard = found.module.heard
    return {heard[name]: line for name, line in found.exported.lines.items() if name in heard}


def _lines_of_masks(found: Examination) -> dict[str, str]:
    """The lines that read its masks, and what it takes for masks."""
    unusable = found.offered.unusable if found.offered else ()
    names = dict.fromkeys([*(mask.name for mask in found.semantics.masks), *(each.argument for each in unusable)])
    return lines_of_arguments(next(found.module.objects(), None), names)


def _answering(found: Examination) -> dict[str, Any]:
    """What was seen of how it answers, beside what layer it is."""
    return {
        "heads_known": found.heads_known,
        "heads_denied": found.heads_denied,
        "chance": found.chance,
        "kept": found.kept,
        "unregistered": found.loose.weights,
        "loose_tensors": found.loose.tensors,
        "wrappers": found.module.wrappers,
        "left_out": found.left_out,
        "other_answers": found.other_answers,
        "trains_unless_told": found.trains_unless_told,
        "padded_item_is_nan": found.padded_item_is_nan,
        "padded_item_raises": found.padded_item_raises,
        "padding_moves_rows": found.padding_moves_rows,
    }


def _x(found: Examination) -> XArgument:
    arrangement = found.module.signature.arrangement
    return XArgument(
        argument=found.module.signature.x,
        layout=LAYOUTS[found.semantics.layout] if arrangement.form == "BSD" else FORMS[arrangement.form].said,
        d_model=found.semantics.d_model,
        evidence="changing one position of x changes others along this axis alone",
        before=_before_x(found.module),
    )


def _masks(found: Examination) -> tuple[MaskArgument, ...]:
    return tuple(
        MaskArgument(
            argument=mask.name,
            dtype=mask.dtype,
            axes=mask.axes,
            shape="[batch]" if mask.counted else axes_text(mask.axes),
            meaning=mask.polarity.meaning,
            place=found.module.signature.places.get(mask.name),
            forms=found.offered.forms[mask.name] if found.offered else (),
            counted=mask.counted,
            past_first=mask.past_first,
            keys_first=mask.keys_first,
            evidence="positions from there on change no other"
            if mask.counted
            else f"a key flagged with {mask.polarity.shut:g} no longer changes any other position",
        )
        for mask in found.semantics.masks
        if mask.polarity
    )


def _formats(found: Examination) -> dict[str, tuple[str, ...]]:
    """Format → the own parameters that were given in it."""
    held: dict[str, list[str]] = {}
    for name, format in found.module.formats.items():
        if name in found.module.shapes:
            held.setdefault(format, []).append(name)
    return {format: tuple(names) for format, names in held.items()}


def _sources(found: Examination) -> dict[str, ModuleSource]:
    """The specification's name → the own parameters that it is."""
    if found.map is None:
        return {}
    sources = {}
    for name in found.map.elements:
        (own, form), (shape, at) = found.map.source(name), found.map.place(name)
        more, times = found.map.more.get(name, 0.0), found.map.times.get(name, 1.0)
        sources[name] = ModuleSource(own=own, form=form, more=more, times=times, shape=shape, at=at)
    return sources
