"""Has a layer of Keras make its weights, called as it takes."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any

import keras

from encoder_conformance.readers.module_target.argument_names import feed_forward_last
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.bundles import ReadOf, unpacked
from encoder_conformance.readers.module_target.calling import signature_of
from encoder_conformance.readers.module_target.errors import (
    MEND,
    MEND_WHATEVER,
    BadTarget,
    last_frames,
    names_nothing,
    raised_by_a_library,
)
from encoder_conformance.readers.module_target.forms_of_x import Arrays, Shape
from encoder_conformance.readers.module_target.furthest import Reached, watched
from encoder_conformance.readers.module_target.lacking import missed_in, perhaps_masks
from encoder_conformance.readers.module_target.lengths import LENGTHS, lengths_said
from encoder_conformance.readers.module_target.live import USUAL_WIDTHS, Signature
from encoder_conformance.readers.module_target.making_again import made_again
from encoder_conformance.readers.module_target.probing import to_be_said
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.module_target.supplies import ToldOf, no_words
from encoder_conformance.readers.module_target.told import with_told
from encoder_conformance.readers.module_target.ways_to_call import ways_to_call, with_another_sequence
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE

_LEAST = 8
"""A number of heads is seldom d_model too, and two features that are normed are ±1, whatever they were."""
_NAMED = ("d_model", "embed_dim", "hidden_size", "hidden_dim", "dim", "d", "width")
_MOST_WAYS = 60
"""Ways to call a layer that are tried to have it build."""
_ROUNDS, _MOST_CALLS = 2, 150
"""Times that it is tried, each time with more arguments, and the calls at each."""
_MOST_LENGTHS, _MOST_LONG, _MOST_SAID = 12, 2, 6
"""Numbers of positions that are tried where 5 are refused, widths at each, and ways to call it at one that it says."""
_OF_A_COPY = re.compile(r"\b0x[0-9a-f]+|(?<=_)\d+")
"""Where an object lies, and the number in a copy's name."""
_MOST_COMPARED = 12
"""Errors of which the one is told that comes after most."""
_Failed = tuple[ExecutionError, Arrangement, Shape]
"""What was raised, and the way to call it and the shape of x for which."""


class _NamesNothing(ExecutionError):
    """A line of the layer names what is not there."""


class _RefusedByALibrary(ExecutionError):
    """What a line of the layer calls raises."""


def call_of(layer: Any) -> Signature:
    return signature_of(layer.call, f"{type(layer).__name__}.call")


def build(layer: Any, told: ToldOf = no_words) -> Arrangement:
    """Have it make its weights, for the first width that it takes and gives, called in the first way that it takes; and
    the mapping that x is in, if it is in one. `told`: what a user says that its arguments are given. Raises BadTarget.
    """
    signature = call_of(layer)
    bundled = _bundled(layer, signature) or signature.arrangement
    if (layer.built and layer.weights) or _is_built_by_ids(layer, signature):
        return bundled
    widths = feed_forward_last(_fields_of(layer), likely_widths(layer), USUAL_WIDTHS)
    words = told(signature.x)
    signature = with_told(replace(signature, arrangement=bundled), words)
    failed, missed = list[_Failed](), tuple[str, ...]()
    for _ in range(_ROUNDS):
        for way, shape in islice(_calls(layer, signature, widths, missed), _MOST_CALLS):
            if (problem := _problem_with(layer, replace(signature, arrangement=way), shape)) is None:
                return bundled
            failed.append((problem, way, shape))
        problems = [str(problem) for problem, *_ in failed]
        missed = next(filter(None, (missed_in(each, signature, missed) for each in problems)), ())
        missed = missed or perhaps_masks(signature, (), [(signature, each) for each in problems])
        if not missed:
            break
    raised = [each for each in failed if not isinstance(each[0], OtherShape)]  # at a width of its own
    furthest = _furthest(layer, signature, raised or failed) if failed else None
    said = furthest or "it gives another width than it takes"
    refused = f"it cannot be built with x [{BATCH}, {SEQUENCE}, d_model]: {said}"
    hint = to_be_said(signature, "name a function that builds it", *missed)
    hint = MEND_WHATEVER if failed and not words.beside and _is_whatever_it_is_given(layer, signature, failed) else hint
    raise BadTarget(refused, MEND if isinstance(furthest, _NamesNothing) else hint)


def _is_built_by_ids(layer: Any, signature: Signature) -> bool:
    """Whether a model that has a table of embeddings makes its weights of ids: a table takes numbers for integers, and
    what comes after it is of another shape then, which some models take."""
    if not any(isinstance(part, keras.layers.Embedding) for part in layer._flatten_layers()):
        return False
    tried, ids = _another(layer), keras.ops.ones((BATCH, SEQUENCE), "int32")
    if tried is layer:
        return False
    try:
        for each in (tried, layer):
            each(ids, **signature.fixed)
    except Exception:  # whatever a layer does with ids in the place of x
        return False
    return bool(layer.built and layer.weights)


def _is_whatever_it_is_given(layer: Any, signature: Signature, failed: Sequence[_Failed]) -> bool:
    """Whether a library raises one and the same for each width and way."""
    said = {_OF_A_COPY.sub("", str(problem)) for problem, *_ in failed}
    if len(said) > 1 or len({shape[-1] for *_, shape in failed}) == 1:
        return False
    _, way, shape = failed[0]
    leaves_out = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()  # which leaves out the lines of Keras
    try:
        problem = _problem_with(layer, replace(signature, arrangement=way), shape)
    finally:
        if leaves_out:
            keras.config.enable_traceback_filtering()
    return isinstance(problem, _RefusedByALibrary)


def _furthest(layer: Any, signature: Signature, failed: Iterable[_Failed]) -> ExecutionError:
    """What it raises where it comes furthest: of a width or a form of angles that is not its own it raises sooner."""
    kinds: dict[str, _Failed] = {}
    for each in failed:
        kinds.setdefault(str(each[0]), each)
    best, furthest = Reached(), next(iter(kinds.values()))[0]
    for problem, way, shape in islice(kinds.values(), _MOST_COMPARED):
        noted, reached = watched(way)
        _problem_with(layer, replace(signature, arrangement=noted), shape)
        if reached and reached[0].is_beyond(best):
            best, furthest = reached[0], problem
    return furthest


def _calls(
    layer: Any, signature: Signature, widths: list[int], missed: tuple[str, ...]
) -> Iterator[tuple[Arrangement, Shape]]:
    """Ways to call it, each with a shape of x: of 5 positions, or as many as it says, in the likeliest ways, of 5 in
    all, then of those that it may take in place of any, in the first. `missed`: arguments that have a default, and are
    given nevertheless."""
    ways = list(islice(ways_to_call(signature, widths, missed), _MOST_WAYS))
    for width in widths:  # of what its first call is refused for, None is told first
        for way in chain(ways[:1], with_another_sequence(ways, signature, width)):
            yield way, (BATCH, SEQUENCE, width)
    said = lengths_said([layer, *layer._flatten_layers()])
    for way, length, width in product(ways[:_MOST_SAID], said[:_MOST_LONG], widths[:_MOST_LONG]):
        yield way, (BATCH, length, width)
    for way, width in product(ways, widths):
        yield way, (BATCH, SEQUENCE, width)
    lengths = dict.fromkeys((*said, *LENGTHS[:_MOST_LENGTHS]))
    for length, width in product(lengths, widths[:_MOST_LONG]):
        yield ways[0], (BATCH, length, width)


def _problem_with(layer: Any, signature: Signature, shape: Shape) -> ExecutionError | None:
    """What is raised where it is called with zeros of this shape, and before it a copy of it, which a wrong width
    leaves built; None where nothing is, and its weights are made."""
    tried, x = _another(layer), keras.KerasTensor(shape, layer.compute_dtype or "float32")
    for each in dict.fromkeys((tried, layer)):
        _with_names_of_scopes(each)
    try:
        if tried is not layer and _is_built_by_x(tried):
            tried.build(x.shape)  # its parts may be made there, which a call alone does
        if tried is layer:  # of a copy a call shows as much, and is computed with numbers, as code may need it
            signature.called(tried.compute_output_spec, x, {}, replace(ARRAYS, is_array=_is_symbol))
        for each in dict.fromkeys((tried, layer)):
            signature.called(each, keras.ops.zeros(shape), {}, ARRAYS)
    except OtherShape as error:
        return OtherShape(str(error), error.shapes)  # without its frames, which hold a copy of the layer
    except Exception as error:  # whatever a layer does with a width that is not its own
        kind = _RefusedByALibrary if raised_by_a_library(error) else ExecutionError
        kind = _NamesNothing if names_nothing(error, keras.layers.Layer) else kind
        return kind(last_frames(own_error(error)))
    return None


def _with_names_of_scopes(layer: Any) -> None:
    """A part of a class whose name begins with _ has a name that does, as none of TensorFlow's outermost scopes may."""
    for part in layer._flatten_layers():
        if part.name.startswith("_"):
            part.name = part.name.lstrip("_") or "layer"


def _is_built_by_x(layer: Any) -> bool:
    """Whether it has a method of its own that makes parts of it, and takes the shape of x alone."""
    if getattr(layer.build, "_is_default", False):
        return False
    taken = inspect.signature(layer.build).parameters.values()
    return sum(each.default is each.empty and each.kind != each.VAR_KEYWORD for each in taken) == 1


def own_error(error: Exception) -> Exception:
    """What the layer's own code raised, of an error that Keras put its words before and, in bold, behind."""
    _, parted, said = str(error).rpartition("Error encountered:\n\n")
    return type(error)(said.partition("\x1b[0m")[0]).with_traceback(error.__traceback__) if parted else error


def _is_symbol(value: Any) -> bool:
    return isinstance(value, keras.KerasTensor)


def _another(layer: Any) -> Any:
    """One made in the same way, to be tried: a wrong width leaves parts built. The layer itself where that is not
    known. Its parts are of its own policy, as they are where that was everybody's."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(layer.dtype_policy)
    try:
        with suppress(Exception):
            return type(layer).from_config(layer.get_config())
        with suppress(Exception):  # one that takes its own arguments alone, and no name
            config, taken = layer.get_config(), inspect.signature(type(layer)).parameters
            return type(layer)(**{name: value for name, value in config.items() if name in taken})
        with suppress(Exception):  # one whose get_config is wrong: Keras keeps plain arguments, too
            return type(layer)(**layer._auto_config.config)
        with suppress(Exception):  # one of keras.Model, of which it keeps none
            return made_again(layer)
        return layer
    finally:
        keras.config.set_dtype_policy(before)


def _bundled(layer: Any, signature: Signature) -> Arrangement | None:
    """How it is called where it takes x out of a mapping or a tuple; it is given nothing that can be computed with."""
    asked, tried = ReadOf(object(), attributes=False), _another(layer)
    if tried is layer:
        return None
    try:
        tried.call(asked, **signature.fixed)
    except Exception as error:  # whatever a layer does with a mapping of nothing
        if found := unpacked(str(error), signature.arrangement):
            return found
    return asked.keys_for(signature.arrangement)


def _beside(value: Any, x: Any) -> Any:
    """An array beside x: numbers in its format."""
    made = keras.ops.convert_to_tensor(value)
    return keras.ops.cast(made, x.dtype) if "float" in str(made.dtype) else made


ARRAYS = Arrays(
    _beside,
    keras.ops.is_tensor,
    keras.ops.swapaxes,
    keras.ops.reshape,
    lambda x: keras.ops.sum(x, -1),
    dict,
)


def likely_widths(layer: Any) -> Iterator[int]:
    """Widths, the likeliest first: a wrong one may leave parts of it built. Attention's first, then named ones and that
    of most of its maps. Many give each head all features, as many as the network's last map gives."""
    parts = [layer, *layer._flatten_layers()]
    mapped = Counter(part.units for part in parts if isinstance(part, keras.layers.Dense))
    for part in parts:
        if isinstance(part, keras.layers.MultiHeadAttention):
            yield from (part.key_dim for _ in mapped.keys() & {part.key_dim})
            yield part.num_heads * part.key_dim
    own = dict(_fields_of(layer))
    yield from (own[name] for name in _NAMED if name in own)
    yield from (units for units, times in mapped.most_common(1) if times > 1)
    yield from sorted(value for value in own.values() if value >= _LEAST)


def _fields_of(layer: Any) -> list[tuple[str, int]]:
    parts = (layer, *layer._flatten_layers())
    return [each for part in parts for each in vars(part).items() if type(each[1]) is int and each[1] > 1]
