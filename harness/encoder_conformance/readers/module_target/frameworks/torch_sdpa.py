"""Scaled dot products without an axis of heads as those of one head, and those of more axes than heads and items as
those of as many more items, which alone can be exported; the module stays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_AXES = 4
"""Of items, heads, positions and features."""
_TENSORS = "query", "key", "value", "attn_mask"


class AttentionHasHeads(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            given = dict(zip(_TENSORS, args, strict=False)) | dict(kwargs)
            if given["query"].ndim == 3:
                headed = {name: _of_one_head(given.pop(name)) for name in _TENSORS if name in given}
                return func(*headed.values(), *args[len(_TENSORS) :], **given).squeeze(1)
            if given["query"].ndim > _AXES and given.pop("attn_mask", None) is None:
                apart = given["query"].shape[: 1 - _AXES]
                items = [given.pop(name).flatten(0, -_AXES) for name in _TENSORS[:-1]]
                return func(*items, None, *args[len(_TENSORS) :], **given).unflatten(0, apart)
        return func(*args, **kwargs)


def _of_one_head(value: Tensor | None) -> Tensor | None:
    """[B, S, d] or a mask [B, Q, K] with an axis of one head; a mask [Q, K] is of all."""
    return value if value is None or value.ndim < 3 else value.unsqueeze(1)
