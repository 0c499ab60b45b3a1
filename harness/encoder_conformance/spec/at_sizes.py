"""The choices of one layer at the sizes of another: what a layer of the specification says of a module of its own size.

Sizes are all numbers that a larger model has larger, and that its configuration says anew: features, heads, layers, how
far a window reaches, how many features of a head are turned, and a weight that goes by depth.
"""

import json
from typing import Any

from encoder_conformance.spec.layer import Attention, Layer, Window


def at_sizes_of(stated: Layer, other: Layer) -> Layer:
    """The choices of `stated` at the sizes of `other`; a size whose key one of them alone has is no size of both.

    A window keeps by how much it reaches further to one side. Raises ValueError where such sizes contradict a choice.
    """
    fields = stated.model_dump(mode="json")
    fields["d_model"] = other.d_model
    fields["attention"] |= _of_attention(stated.attention, other.attention)
    fields["feed_forward"]["d_ff"] = other.feed_forward.d_ff
    fields["stack"] = other.stack.model_dump(mode="json")
    if stated.stack.layers > 1 < other.stack.layers:  # one layer says nothing of what follows the last of several
        fields["stack"].update(final_norm=stated.stack.final_norm)
    fields["family"] = "stacks" if other.stack.is_several else stated.family
    if stated.residual_scale != 1.0 != other.residual_scale:
        fields["residual_scale"] = other.residual_scale
    return Layer.model_validate_json(json.dumps(fields))


def _of_attention(stated: Attention, other: Attention) -> dict[str, Any]:
    """The keys of attention that are sizes, where both layers have them."""
    sizes: dict[str, Any] = {"num_heads": other.num_heads}
    if stated.head_dim is not None:
        sizes["head_dim"] = other.head_dim
    if stated.kv_heads is not None:
        sizes["kv_heads"] = other.kv_heads or _most(stated.kv_heads, other.num_heads)
    if stated.window is not None and other.window is not None:
        sizes["window"] = _widened(stated.window, other.window)
    if stated.rope is not None and other.rope is not None and stated.rope.rotated and other.rope.rotated:
        sizes["rope"] = {**stated.rope.model_dump(mode="json"), "rotated": other.rope.rotated}
    return sizes


def _most(count: int, num_heads: int) -> int:
    """The most heads of keys, up to so many, that serve as many heads of queries each."""
    return max(number for number in range(1, count + 1) if num_heads % number == 0)


def _widened(stated: Window, other: Window) -> dict[str, int]:
    """The stated window, as far to the right as another."""
    further = stated.right - stated.left
    return {"left": max(0, other.right - further), "right": max(other.right, further)}
