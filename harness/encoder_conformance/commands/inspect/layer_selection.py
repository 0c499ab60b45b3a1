"""Selects the layer and case to inspect: a layer, at its own sizes or others, and a batch for it."""

import json
from collections.abc import Iterable
from math import prod
from pathlib import Path

from pydantic import ValidationError

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.protocol.frames import LARGEST_FRAME
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer, Stack
from encoder_conformance.spec.load import every_case, load, published_layers
from encoder_conformance.spec.masking import EndPadding
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger
from encoder_conformance.spec.yaml_file import EXTENSIONS


def find_layer(id_or_path: str, *, built: bool = True) -> Layer:
    """A layer of the specification or of a published encoder by its id, or the user's own by the path of its YAML.

    `built`: whether its parameters are going to be made. Raises InputError, then also if they are too large for that.
    """
    layers = load().layers
    if id_or_path in layers:
        return layers[id_or_path]
    if id_or_path in (published := published_layers()):
        return published[id_or_path]
    path = Path(id_or_path)
    if path.suffix in EXTENSIONS or path.is_file():
        layer = load(extra_layers=(path,)).layers[path.stem]
        if built:
            refuse_larger(layer, LARGEST_BUILT, f"--layer {id_or_path}")
        return layer
    hint = f"{nearest(id_or_path, [*layers, *published])} (conform list layers; or give a YAML file)"
    raise InputError(f"no layer {id_or_path!r}, nor a file of that name", where="--layer", hint=hint)


def encoder_layer_of(layer: Layer, command: str) -> Layer:
    """The layer itself, for a command that needs an encoder layer. Raises InputError if it is attention alone."""
    if layer.part == "attention":
        hint = "name one that has a feed-forward network too (conform list layers)"
        raise InputError(f"{layer.layer} is attention alone: {command}", where="--layer", hint=hint)
    return layer


def resized(
    layer: Layer, d_model: int | None, num_heads: int | None, d_ff: int | None, dropout: float | None = None
) -> Layer:
    """The layer at other sizes, and with one `dropout` rate at every placement; None keeps the layer's own."""
    if d_model is num_heads is d_ff is dropout is None:
        return layer
    fields = layer.model_dump(mode="json")
    fields["d_model"] = d_model or layer.d_model
    fields["attention"]["num_heads"] = num_heads or layer.attention.num_heads
    fields["feed_forward"]["d_ff"] = d_ff or layer.feed_forward.d_ff
    if dropout is not None:
        placements = set(fields["dropout"]) - (set() if layer.embedding else {"embedded"})
        fields["dropout"] = fields["dropout"] | dict.fromkeys(placements, dropout)
    fields["layer"] = f"{layer.layer}-resized"
    try:
        return Layer.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        where = "--d-model, --num-heads, --d-ff"
        raise InputError(problem, where=where, hint=f"sizes that are not given are those of {layer.layer}") from None


def stacked(layer: Layer, layers: int) -> Layer:
    """A stack of `layers` encoder layers like `layer`, without embedding and final norm. Raises InputError."""
    try:
        stack = Stack(layers=layers, final_norm=False)
    except ValidationError as error:
        problem = f"{error.errors()[0]['msg']} (found {layers})"
        raise InputError(problem, where="--layers", hint="a larger stack can be predicted, and not measured") from None
    return layer.one_of_it.model_copy(update={"stack": stack})


def at_size(
    layer: Layer,
    batch: int,
    sequence: int,
    lengths: tuple[int, ...] = (),
    *,
    checkpoint: bool = False,
    training: bool = False,
) -> Case:
    """A case of `layer` with the input of the situation `no-mask`, [batch, sequence, d_model].

    `lengths`: the number of valid positions of each item, repeated cyclically; () for no padding mask.
    `checkpoint`: the backward pass recomputes activations (B-3). `training`: mode train, with dropout.
    Raises InputError if `lengths` do not fit.
    """
    ordinary = load().situations["no-mask"]
    item_lengths = tuple(lengths[item % len(lengths)] for item in range(batch)) if lengths else ()
    padding = EndPadding(kind="right", lengths=item_lengths) if lengths else None
    mask = ordinary.mask.model_copy(update={"padding": padding})
    if problem := mask.problem(batch, sequence, sequence):
        raise InputError(problem, where="--length", hint="each is at most --sequence, and one above 0")
    sizes = {"batch": batch, "sequence": sequence, "mask": mask, "checks": ("output", "stages")}
    asked = {
        "given": ordinary.given.model_copy(update={"checkpoint": checkpoint}),
        "mode": "train" if training else "eval",
    }
    return Case(layer, ordinary.model_copy(update={**sizes, **asked}))


def find_case(case_id: str) -> Case:
    """The case of the specification with this id. Raises InputError."""
    cases = every_case()
    if case_id not in cases:
        hint = f"{nearest(case_id, cases)} (conform list cases)"
        raise InputError(f"no case {case_id!r}", where="--case", hint=hint)
    return cases[case_id]


def describe_case(case: Case) -> str:
    """`encoder-512: B = 32, S = 50, D = 512, H = 8, d = 64, F = 2048, N = 6`; N only for a stack."""
    layer, (B, S, D) = case.layer, case.x_shape
    heads, d_ff = layer.attention.num_heads, layer.feed_forward.d_ff
    layers = f", N = {layer.stack.layers}" if layer.is_stack else ""
    return f"{layer.layer}: B = {B}, S = {S}, D = {D}, H = {heads}, d = {layer.head_dim}, F = {d_ff}{layers}"


def refuse_too_large(shapes: Iterable[tuple[int, ...]], batch: int, dtype: DtypeName) -> None:
    """Raises InputError if an answer of tensors of these shapes, of `batch` items, would not fit in one frame."""
    size = sum(map(prod, shapes)) * FORMATS[dtype].numpy.itemsize
    if size > LARGEST_FRAME * 0.99:  # the header and the rounding up take the rest
        most = int(LARGEST_FRAME * 0.99 * batch) // size
        hint = f"--batch {most} would fit" if most else "take a smaller --sequence: even one item is too large"
        message = f"the answer would be {size / 2**30:.2f} GiB; a frame holds {LARGEST_FRAME / 2**30:g}"
        raise InputError(message, where="--batch, --sequence", hint=hint)
