"""The source of an adapter that does what was done with a module, to be read and edited."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from encoder_conformance import Take
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import listed

_SOURCE = '''"""Drives {target}{part}, as `conform check` found it."""

from encoder_conformance import ParameterMap, Take, serve
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.live import Signature
from encoder_conformance.readers.module_target.locating import Place
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.module_target.written import WrittenAdapter
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics, Polarity
from encoder_conformance.protocol.description import Port


class WrittenByCheck(WrittenAdapter):
    target = {target!r}
    arguments = {arguments!r}
    folder = {folder!r}  # where the target's package or file is
    at = {at!r}
    parameters = ParameterMap(
        {{
{takes}
        }}
    )
    absent = {absent!r}
    sizes = {sizes!r}
    signature = {signature!r}
    semantics = {semantics!r}
    always_causal = {always_causal!r}
    places = {{
{places}
    }}


if __name__ == "__main__":
    serve(WrittenByCheck())
'''


def adapter_source(found: Examination, named: Mapping[str, Any]) -> tuple[str, str]:
    """The source, and why there is none: one of them is ""."""
    layer, map = found.stated or found.layer, found.map
    if map is None or layer is None:
        return "", "its parameters were not found"
    if reason := _unwritable(found, map):
        return "", reason
    takes = dict(_takes(map))
    if without := [own for own, take in takes.items() if take is None]:
        return "", f"no Take says how {without[0]} holds what it holds"
    source = _SOURCE.format(
        **named,
        part=f", {named['at']}" if named["at"] else "",
        takes="\n".join(f"            {own!r}: {take}," for own, take in takes.items()),
        absent=found.absent,
        sizes={
            "d_model": layer.d_model,
            "attention": {"num_heads": layer.attention.num_heads},
            "feed_forward": {"d_ff": layer.feed_forward.d_ff},
        },
        signature=found.module.signature,
        semantics=found.semantics,
        always_causal=found.always_causal,
        places="\n".join(f"        {stage!r}: {place!r}," for stage, place in found.stages.items()),
    )
    return source, ""


def _unwritable(found: Examination, map: ElementMap) -> str:
    """What of a module no adapter can set or say; "" where there is nothing."""
    if found.absent:
        return f"it has no {listed(list(found.absent))}, which the cases of a run set"
    if found.tied:
        return f"{' and '.join(found.tied[0])} are one tensor, and two in the cases of a run"
    if found.folded or found.loose.weights or map.more or map.times:
        return "its weights are computed of others, or held outside of its parameters"
    unsaid = found.module.signature.arrangement.unsaid
    return f"what {listed(list(unsaid))} is given is an array or a function, which no source says" if unsaid else ""


def _takes(map: ElementMap) -> Iterator[tuple[str, str | None]]:
    """Own name → the `Take` that makes it, as source; None if no `Take` does."""
    for own in map.own.shapes:
        elements = map.own.elements(own)
        if not elements.size:  # one that holds nothing is a part of all
            continue
        within = [name for name, at in map.elements.items() if np.isin(at.reshape(-1)[:1], elements).all()]
        larger = [name for name, at in map.elements.items() if at.size > elements.size and np.isin(elements, at).all()]
        if larger:
            yield own, _part(larger[0], map.elements[larger[0]], elements)
        elif within:
            yield own, _take(sorted(within, key=lambda name: int(map.elements[name].min())), map, elements)


def _part(source: str, whole: Array, elements: Array) -> str | None:
    """The `Take` of a part of one parameter [in, out] or [out], as of a head, tried in the same way. `elements`: those
    of the own parameter, of any shape."""
    count = whole.size // elements.size
    for transpose, axis, index in product((False, True), range(whole.ndim), range(count)):
        part = index, count, axis
        try:
            made = Take(source, transpose=transpose, part=part, shape=elements.shape).to_own({source: whole}, {})
        except (ValueError, IndexError):
            continue
        if np.array_equal(made, elements):
            turned = ", transpose=True" if transpose else ""
            return f"Take({source!r}{turned}, part={part}, shape={elements.shape})"
    return None


def _take(sources: list[str], own: ElementMap, elements: Array) -> str | None:
    """The `Take` is tried, and not deduced: each is played on the numbers of elements."""
    spec = {name: own.elements[name] for name in sources}
    for backwards, transpose, fuse in product((False, True), (False, True), (0, 1)):
        tried: dict[str, Any] = {"transpose": transpose, "fuse": fuse, "backwards": backwards}
        try:
            made = Take(*sources, **tried, shape=elements.shape).to_own(spec, {})
        except (ValueError, IndexError):
            continue
        if np.array_equal(made, elements):
            options = [f"{name}={value}" for name, value in tried.items() if value]
            plain = spec[sources[0]].T.shape if transpose else spec[sources[0]].shape
            if len(sources) == 1 and plain != elements.shape:
                options.append(f"shape={elements.shape}")
            return f"Take({', '.join([*map(repr, sources), *options])})"
    return None
