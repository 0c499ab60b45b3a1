"""The sizes of a module, for a layer that is stated by its choices alone."""

import json
from collections import Counter

from pydantic import ValidationError

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.spec.at_sizes import at_sizes_of
from encoder_conformance.spec.layer import Layer


def with_sizes_of(module: LiveModule, stated: Layer, d_model: int, read: Layer | None) -> Layer:
    """The stated choices at the module's sizes: those that were read off it, else d_model, and the rest by shapes.

    The number of heads is then the stated one, where it divides d_model, and is to be found. Raises BadTarget for a
    layer that has no such sizes.
    """
    try:
        return _with_sizes(module, stated, d_model, read)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise BadTarget(f"{stated.layer} cannot have the sizes of {module.type_name}: {problem}") from None


def _with_sizes(module: LiveModule, stated: Layer, d_model: int, read: Layer | None) -> Layer:
    if read is not None:
        return at_sizes_of(stated, read)
    fields = stated.model_dump(mode="json")
    fields["d_model"] = d_model
    fields["attention"]["num_heads"] = _heads(stated, d_model)
    fields["feed_forward"]["d_ff"] = _d_ff(module, d_model)
    fields["family"] = "stacks" if stated.stack.is_several else stated.family
    return Layer.model_validate_json(json.dumps(fields))


def _heads(stated: Layer, d_model: int) -> int:
    usual = stated.attention.num_heads
    return usual if d_model % usual == 0 else 1


def _d_ff(module: LiveModule, d_model: int) -> int:
    """The commonest other size of a matrix that has one side of d_model, but for three of d_model in one."""
    sizes = Counter[int]()
    for shape in module.shapes.values():
        if len(shape) == 2 and d_model in shape:
            sizes.update(size for size in shape if size not in (d_model, 3 * d_model))
    return sizes.most_common(1)[0][0] if sizes else 4 * d_model
