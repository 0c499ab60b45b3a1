"""A module of PyTorch in training, with nothing dropped: its dropout is taken out, and all else is as it is."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_DROPPING = (F.dropout, torch.dropout, F.alpha_dropout, F.feature_alpha_dropout, F.dropout1d, F.dropout2d)
"""Functions whose first argument is what they give where they drop nothing."""
_AT: Mapping[Callable[..., Any], int] = {
    F.scaled_dot_product_attention: 4,
    F.multi_head_attention_forward: 10,
}
"""Functions that drop something inside → the place of `dropout_p` among their arguments."""
_BY_BATCH = (F.batch_norm, torch.batch_norm)
"""Functions that norm by the batch's own numbers in training, and not in evaluation."""
_DRAWING = ("rand", "bernoulli", "uniform", "normal", "multinomial", "exponential", "geometric", "dropout")
"""Beginnings of the names of functions that draw numbers."""


class NothingDropped(TorchFunctionMode):
    """Raises ExecutionError where what is due is not known: a number is drawn otherwise than by dropout, or a norm is
    of the batch."""

    def __enter__(self) -> "NothingDropped":
        self._drawn = _state()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if error[0] is None and _state() != self._drawn:
            raise ExecutionError("in training it draws from where dropout does not")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPPING:
            return args[0] if args else kwargs["input"]
        if (place := _AT.get(func)) is not None:
            args = (*args[:place], 0.0, *args[place + 1 :]) if len(args) > place else args
            kwargs |= {"dropout_p": 0.0} if "dropout_p" in kwargs else {}
        elif str(getattr(func, "__name__", "")).startswith(_DRAWING):
            raise ExecutionError(f"in training it calls {func.__name__}")
        if func in _BY_BATCH:
            raise ExecutionError("in training its norm is of the batch")
        answer: Tensor = func(*args, **kwargs)
        return answer


def refuse_another(plain: Array, overridden: Array) -> None:
    """Raises ExecutionError where it is another output [B, S, D], in evaluation, where functions of PyTorch are
    overridden: then one function is called for another there, and dropout is taken out of that."""
    if not np.array_equal(plain, overridden):
        raise ExecutionError("where functions of PyTorch are overridden it gives another output")


def _state() -> tuple[bytes, str, str]:
    return torch.get_rng_state().numpy().tobytes(), repr(random.getstate()), repr(np.random.get_state())
