"""What a module takes past the gradients, as by `weight.data`, in what is exported; the module stays.

PyTorch's tracing makes of `data` a tensor that it knows nothing of; `detach` gives the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

_DATA = Tensor.data.__get__


class DataIsDetached(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return args[0].detach() if func == _DATA else func(*args, **(kwargs or {}))
