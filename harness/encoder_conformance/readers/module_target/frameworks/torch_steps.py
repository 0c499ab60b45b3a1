"""What a PyTorch layer does that no layer of the specification does, seen by its operators and what depends on x."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_conformance.readers.module_target.frameworks.torch_sums import sums_in
from encoder_conformance.readers.onnx_file.tracing.unsupported import Feature

_PRODUCTS = {"bmm", "baddbmm"}
_OPERATORS: dict[str, Feature] = {
    **dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), "fourier"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), "batch"),
    **dict.fromkeys(("cudnn_batch_norm", "_batch_norm_no_update", "_batch_norm_with_update"), "batch"),
    **dict.fromkeys(("topk", "sort", "argsort"), "experts"),
    **dict.fromkeys(("lstm", "gru", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), "recurrence"),
}
"""An operator → what it shows, where it takes what depends on x."""
_ORDER: tuple[Feature, ...] = (
    "fourier", "recurrence", "convolution", "experts", "batch", "relative", "bias_of_x", "products", "blocks",
    "one_gain", "sums",
)  # fmt: skip
"""What is found, the most telling first."""
_SUMS = 2
_ATTENTION = 2
"""Products of values that depend on x with each other: the scores, and the weights times the values."""


class _Operators(TorchDispatchMode):
    """Notes what the operators show that take x, or what depends on it."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.found = set[Feature]()
        self.products = 0
        self._positions = x.shape[:2]
        self._dependent: dict[int, Tensor] = {id(x): x}
        self._of_weights = dict[int, Tensor]()
        self._weights = {value.untyped_storage().data_ptr() for value in module.parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        given = [*_tensors(args), *_tensors((kwargs or {}).values())]
        made = {id(each): each for each in _tensors((answer,))}
        depending = [each for each in given if id(each) in self._dependent]
        if depending:
            self._note(func._schema.name.rpartition("::")[2].rstrip("_"), given, depending)
            self._dependent |= made
        elif any(self._is_of_weights(each) for each in given):
            self._of_weights |= made
        return answer

    def _is_of_weights(self, value: Tensor) -> bool:
        return id(value) in self._of_weights or value.untyped_storage().data_ptr() in self._weights

    def _note(self, name: str, given: list[Tensor], depending: list[Tensor]) -> None:
        if name in _OPERATORS:
            self.found.add(_OPERATORS[name])
        elif name == "convolution" and any(size > 1 for size in given[1].shape[2:]):
            self.found.add("convolution")
        elif "attention" in name and len(depending) > 1:
            self.products += _ATTENTION
            self._note_keys(depending[1].shape[-2])
            self.found |= {"bias_of_x"} if any(self._is_of_scores(each) for each in depending[3:]) else set()
        elif name == "add" and sum(map(self._is_of_scores, depending)) > 1:
            self.found.add("bias_of_x")
        elif name in _PRODUCTS:
            one, two = given[-2:]
            self.found |= {"bias_of_x"} if len(given) > 2 and id(given[0]) in self._dependent else set()
            if id(one) in self._dependent and id(two) in self._dependent:
                self.products += 1
                if self.products == 1:
                    self._note_keys(two.shape[-1])
            elif not {each.untyped_storage().data_ptr() for each in (one, two)} & self._weights:
                self.found.add("relative")
        elif name == "mul" and any(each.numel() == 1 and self._is_of_weights(each) for each in given):
            self.found.add("one_gain")

    def _is_of_scores(self, value: Tensor) -> bool:
        """Whether it has one number for each query and key."""
        S = self._positions[1]
        return value.ndim > 2 and tuple(value.shape[-2:]) == (S, S)

    def _note_keys(self, count: int) -> None:
        """Of the first scores."""
        if count < self._positions[1] and count not in self._positions:
            self.found.add("blocks")


def beyond(module: nn.Module, run: Callable[[Tensor], Any], x: Tensor) -> tuple[Feature, ...]:
    """What a layer does with x that the specification has not, the most telling first; () where nothing is seen."""
    seen = _Operators(module, x)
    with suppress(Exception), torch.no_grad():
        with seen:
            run(x)
        if sums_in(module, lambda: run(x)) > _SUMS:
            seen.found.add("sums")
    if seen.products > _ATTENTION:
        seen.found.add("products")
    return tuple(each for each in _ORDER if each in seen.found)


def _tensors(values: Any) -> Iterator[Tensor]:
    for each in values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)
