"""A large model as the stack that a file holds: each of its layers is read by itself, and compared with the file's."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.protocol.arguments import MEANINGS, MaskMeaning
from encoder_conformance.protocol.findings import Finding, Problem, noted
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import prefix, without_prefix
from encoder_conformance.subjects.checkpoint import map_checkpoint
from encoder_conformance.subjects.module import ModuleWorker
from encoder_conformance.subjects.subject import Array, Subject

Parameters = Mapping[str, Array]
_OF_THE_STACK = "norm.first"
"""A choice that a layer by itself does not show (clause E-24)."""
NOT_ASKED = "its layers were read each by itself, and not asked as one"


@dataclass(frozen=True)
class _Part:
    """A layer of the model at this path. `layer` None: it was not read, and `problem` is why.

    `masks`: its masks, and what true means in each. `parameters`: by the names that a single layer has; those that one
    of the file's layers has too are that array, for all are as large as the model. `equal`: number of a layer of the
    file → how many of its parameters are these.
    """

    path: str
    layer: Layer | None = None
    masks: Mapping[str, MaskMeaning] | None = None
    parameters: Parameters | None = None
    own_names: Mapping[str, str] | None = None
    problem: str = ""
    equal: Mapping[int, int] | None = None


def open_layers(module: ModuleWorker, made: Parameters, layer: Layer) -> Subject | None:
    """The model's layers, one after the other, as the file's of the stack `layer`, whose parameters are `made`; the
    list of them that has most of their values. None where no layer of it has parameters of these names and shapes."""
    count, (paths, vectors) = layer.stack.layers, module.layers()
    due = [_of_layer(made, number) for number in range(count)]
    best: tuple[int, list[_Part]] | None = None
    for several in _lists(paths):
        parts = [_read(module, path, due) for path in several] if len(several) >= count else []
        for start in range(len(parts) - count + 1):
            run = parts[start : start + count]
            equal = sum((part.equal or {}).get(number, 0) for number, part in enumerate(run))
            if any(part.parameters for part in run) and (best is None or equal > best[0]):
                best = equal, run
    return None if best is None else _stacked(module, best[1], made, layer, vectors)


def _of_layer(made: Parameters, number: int) -> dict[str, Array]:
    own = prefix(number)
    return {name.removeprefix(own): value for name, value in made.items() if name.startswith(own)}


def _lists(paths: Sequence[str]) -> Iterator[list[str]]:
    """Those that stand in one list: their paths are one, but for a number."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(re.sub(r"\d+", "#", path), []).append(path)
    yield from found.values()


def _read(module: ModuleWorker, path: str, due: Sequence[Parameters]) -> _Part:
    """The part at this path: one that is like another before it was compared with that, bit for bit."""
    found = module.examined(path, like=True)
    if isinstance(found, Problem):
        return _Part(path, problem=found.message)
    described = found.as_module
    if found.layer is None or described.unplaced:
        why = described.not_read.problem if described.not_read else f"{', '.join(described.unplaced)} is not found"
        return _Part(path, problem=why)
    if described.proof is None or not described.proof.holds:
        return _Part(path, problem="what was read off it was not proved")
    layer = found.layer.with_decimal_epsilon
    own, masks = found.parameters, {name: mask.meaning for name, mask in described.mask_inputs.items()}
    fitting = [number for number, theirs in enumerate(due) if _shapes(own) == _shapes(theirs)]
    if not fitting:
        return _Part(path, layer, masks, problem="its parameters have other names or shapes")
    equal = {number: sum(_same(own[name], value) for name, value in due[number].items()) for number in fitting}
    nearest = due[max(fitting, key=equal.__getitem__)]
    shared = {name: nearest[name] if _same(value, nearest[name]) else value for name, value in own.items()}
    return _Part(path, layer, masks, shared, found.own_names, equal=equal)


def _shapes(parameters: Parameters) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(value) for name, value in parameters.items()}


def _same(own: Array, due: Array) -> bool:
    """Whether they have the same values: a narrower file's are not."""
    return own.dtype == due.dtype and np.array_equal(own, due)


def _stacked(
    module: ModuleWorker, parts: Sequence[_Part], made: Parameters, layer: Layer, vectors: Parameters
) -> Subject:
    request = module.request
    name = request.target if request.at is None else f"{request.target} at {request.at}"
    read = [part for part in parts if part.parameters]
    usual, _ = Counter(part.layer for part in read if part.layer).most_common(1)[0]
    stack = _as_stack(usual, layer)
    parameters, own_names = dict[str, Array](), dict[str, str]()
    for number, part in enumerate(parts):
        for own, value in (part.parameters or {}).items():
            parameters[prefix(number) + own] = value
            own_names[prefix(number) + own] = f"{part.path}.{(part.own_names or {})[own]}"
    rest = {own: value for own, value in made.items() if not without_prefix(own)[0]}
    for own, tensor in map_checkpoint(vectors, rest).items():
        parameters[own], own_names[own] = tensor.value, tensor.name
    return Subject(
        name=name,
        layer=stack,
        parameters=parameters,
        own_names=own_names,
        at=request.at,
        said=(_said(name, parts), *_apart(name, parts, stack)),
        not_asked=NOT_ASKED,
    )


def _as_stack(usual: Layer, layer: Layer) -> Layer:
    """Most of its layers are so, as the stack that the file is: what differs from layer to layer is looked at one by
    one."""
    norm = usual.norm.model_copy(update={"first": layer.norm.first})
    attention, several = usual.attention, layer.stack.global_layers
    if several is not None:
        own = {"window": layer.attention.window, "rope": layer.attention.rope}
        attention = attention.model_copy(update=own)
    return usual.model_copy(update={"norm": norm, "attention": attention, "stack": layer.stack})


def _said(name: str, parts: Sequence[_Part]) -> Finding:
    ends = f"{parts[0].path} to {parts[-1].path}"
    message = (
        f"{name} is large: its {len(parts)} layers, {ends}, were read each by itself; how it calls them, and what it "
        "does between them, was compared by its outputs alone; "
        f"each by itself hides positions {_by(_usual_masks(parts))}"
    )
    return noted("too-large-as-one", message, parts=[part.path for part in parts])


def _usual_masks(parts: Sequence[_Part]) -> Mapping[str, MaskMeaning] | None:
    """The masks of most of the layers that were read."""
    read = [part.masks for part in parts if part.layer is not None]
    return max(read, key=read.count)


def _apart(name: str, parts: Sequence[_Part], stack: Layer) -> Iterator[Finding]:
    """The layers that are not as the others, and those of which nothing was compared."""
    usual = _usual_masks(parts)
    for number, part in enumerate(parts):
        place = f"layers.{number}"
        if part.layer is not None:
            for key, due, own in differences(part.layer, stack.of_number(number)):
                if key != _OF_THE_STACK:
                    message = f"{place}: {key} is {own} in {part.path} of {name}, and {due} in its other layers"
                    hint = "the file's layers are alike: one of them computes another thing"
                    about = {"layer": place, "part": part.path, "key": key, "found": own, "others": due}
                    yield Finding(severity="error", kind="layers-differ", message=message, hint=hint, about=about)
            if part.masks != usual:
                hides = f"{part.path} of {name} hides positions {_by(part.masks)}"
                message = f"{place}: {hides}, and its other layers {_by(usual)}"
                about = {"layer": place, "part": part.path, "found": part.masks, "others": usual}
                yield Finding(severity="warning", kind="layers-differ", message=message, about=about)
        if not part.parameters:
            message = f"{place} was not compared with {part.path} of {name}: {part.problem}"
            about = {"layer": place, "part": part.path}
            yield Finding(severity="warning", kind="not-compared", message=message, about=about)


def _by(masks: Mapping[str, MaskMeaning] | None) -> str:
    said = ", ".join(f"{name} ({MEANINGS[meaning]})" for name, meaning in (masks or {}).items())
    return f"by {said}" if said else "by no mask"
