"""What a PyTorch layer does that no layer of the specification does, seen by its operators and what depends on x."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators
from encoder_conformance.readers.module_target.frameworks.torch_sums import ResidualSum, sums_in
from encoder_conformance.readers.onnx_file.tracing.features import Feature

_PRODUCTS = {"bmm", "baddbmm"}
_OPERATORS: dict[str, Feature] = {
    **dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), "fourier"),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), "batch"),
    **dict.fromkeys(("native_group_norm", "instance_norm"), "over_positions"),
    **dict.fromkeys(("cudnn_batch_norm", "_batch_norm_no_update", "_batch_norm_with_update"), "batch"),
    **dict.fromkeys(("lstm", "gru", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), "recurrence"),
}
"""An operator → what it shows, where it takes what depends on x."""
_SOFTMAX = {"_softmax", "_safe_softmax", "_log_softmax", "exp", "exp2", "logsumexp"}
"""What a softmax may be computed by, in base 2, too."""
_POWERS = {torch.ops.aten.pow.Scalar, torch.ops.aten.pow.Scalar_out}
"""A number to the power of what depends on x."""
_CHOOSING = {"topk", "sort", "argsort"}
_ORDER: tuple[Feature, ...] = (
    "fourier", "recurrence", "convolution", "experts", "positions", "batch", "over_positions", "relative", "additive",
    "bias_of_x", "no_softmax", "products", "own_keys", "one_key", "blocks", "one_gain", "sums",
)  # fmt: skip
"""What is found, the most telling first."""
_NEAR = 2e-2
"""The error of a square of sine and cosine in bfloat16."""
_SUMS = 2
_ATTENTION = 2
"""Products of values that depend on x with each other: the scores, and the weights times the values."""


class _Operators(SeesOperators):
    """Notes what the operators show that take x, or what depends on it."""

    def __init__(self, module: nn.Module, x: Tensor, layout: Layout) -> None:
        super().__init__()
        self.found = dict[Feature, str]()
        self.products = 0
        self.third = ""
        self._softmax = False
        """Whether one was taken of what depends on x."""
        self._shape = x.shape
        self._alike = Counter[tuple[object, ...]]()
        """The code and shapes of a product → how often it was taken."""
        items, positions = x.shape[0], x.shape[1:-1].numel()
        self._sizes = (positions, items) if layout == "SBD" else (items, positions)
        self._scores = dict[int, Tensor]()
        """Products of what depends on x, and what is made of them but for a product with the values."""
        self._dependent: dict[int, Tensor] = {id(x): x}
        self._written = set[int]()
        """Where what depends on x was written in place."""
        self._of_weights = dict[int, Tensor]()
        self._weights = {_place(value) for value in module.parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        given = [*_tensors(args), *_tensors((kwargs or {}).values())]
        made = {id(each): each for each in _tensors((answer,))}
        depending = [each for each in given if self._depends(each)]
        if depending:
            named = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | (kwargs or {})
            name = "exp" if func in _POWERS else func._schema.name.rpartition("::")[2].rstrip("_")
            for feature in self._features(name, given, depending, named.get("dim", -1)):
                self._see(feature)
            self._dependent |= made
            if func._schema.is_mutable:  # as of a cache of keys, of which a part is read then
                self._written |= {_place(each) for each in made.values()}
            if shapes := self._shapes_of_scores(name, given, made):
                kept = self._kept_scores()  # as where einsum puts an axis of one before the last
                self._scores |= {
                    key: each for key, each in made.items() if each.shape[-2:] in shapes or _place(each) in kept
                }
        elif any(self._is_of_weights(each) for each in given):
            self._of_weights |= made
        return answer

    def _depends(self, value: Tensor) -> bool:
        return id(value) in self._dependent or _place(value) in self._written

    def _is_a_weight(self, *values: Tensor) -> bool:
        """Whether one of them is a parameter's."""
        return not self._weights.isdisjoint(_place(each) for each in values)

    def _is_of_each_item(self, value: Tensor) -> bool:
        """Whether it is a parameter's matrix once more for each item, and no vectors of positions."""
        by_item = value.ndim > 2 and self._sizes[1] not in value.shape[-2:]
        return by_item and id(value) in self._of_weights and bool((value == value[:1]).all())

    def _is_of_weights(self, value: Tensor) -> bool:
        return id(value) in self._of_weights or _place(value) in self._weights

    def _kept_scores(self) -> set[int]:
        """The places in memory of scores, which are the same numbers in another shape."""
        return {_place(each) for each in self._scores.values()}

    def _shapes_of_scores(self, name: str, given: list[Tensor], made: Mapping[int, Tensor]) -> set[torch.Size]:
        """The shapes, of queries and keys, that what is made has where it is scores."""
        scores = {each.shape[-2:] for each in given if id(each) in self._scores}
        if name not in _PRODUCTS:
            return scores
        is_first = not scores and all(map(self._depends, given[-2:])) and not self._is_of_weighted(given)
        return {each.shape[-2:] for each in made.values()} if is_first else set()

    @contextmanager
    def recurrent(self, module: nn.Module) -> Iterator[None]:
        """For a call, in which recurrent networks are seen by their modules: theirs are operators that others have."""
        networks = [each for each in module.modules() if isinstance(each, (nn.RNNBase, nn.RNNCellBase))]
        hooks = [each.register_forward_pre_hook(lambda *_: self._see("recurrence")) for each in networks]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _see(self, feature: Feature) -> None:
        if feature not in self.found:
            self.found[feature] = code_in(extract_stack(), ("torch",))

    def _features(self, name: str, given: list[Tensor], depending: list[Tensor], dim: int) -> Iterator[Feature]:
        """What an operator shows. `dim`: the axis that it works along, where it has one."""
        if name in _OPERATORS:
            yield _OPERATORS[name]
        elif name in _CHOOSING:
            yield "positions" if depending[0].shape[dim] == self._sizes[1] else "experts"
        elif name == "convolution" and any(size > 1 for size in given[1].shape[2:]):
            yield "convolution"
        elif name in _SOFTMAX:
            self._softmax = True
        elif "attention" in name and len(depending) > 1:
            self._softmax = True
            for product in range(_ATTENTION):
                shapes = product, *(each.shape for each in depending[:3])
                yield from self._of_products(depending[0].shape[-2], depending[1].shape[-2], shapes)
            if any(self._is_of_scores(each) for each in depending[3:]):
                yield "bias_of_x"
        elif name == "add" and any(id(each) in self._scores for each in depending):
            alike = sum(each.ndim > 2 and each.shape[-2:] == depending[0].shape[-2:] for each in depending)
            is_residual = all(each.shape == self._shape for each in depending)
            if alike > 1 and not is_residual:
                yield "bias_of_x"
        elif name in _PRODUCTS and self._is_of_weighted(given):
            yield "additive"
        elif name in _PRODUCTS:
            one, two = given[-2:]
            if len(given) > 2 and self._depends(given[0]):
                yield "bias_of_x"
            if self._depends(one) and self._depends(two):
                if id(one) in self._scores and self._is_of_scores(one) and not self._softmax:
                    yield "no_softmax"
                yield from self._of_products(one.shape[-2], two.shape[-1], (one.shape, two.shape))
            elif (
                not self._is_a_weight(one, two)
                and not any(map(self._is_of_each_item, (one, two)))
                and not _turns(two if self._depends(one) else one)
            ):
                yield "relative"
        elif name == "mul" and any(each.numel() == 1 and self._is_of_weights(each) for each in given):
            yield "one_gain"

    def _of_products(self, queries: int, keys: int, shapes: tuple[object, ...]) -> Iterator[Feature]:
        """One more product of what depends on x, of these shapes; the first is the scores, of so many queries, keys."""
        if not self.products and keys not in self._sizes:
            if keys < self._sizes[1]:
                yield "one_key" if queries == keys == 1 else "blocks"
            elif (
                queries == self._sizes[1] and keys > queries + 1
            ):  # one is E-44's; filled up, there are more queries too
                yield "own_keys"
        self.products += 1
        code = code_in(extract_stack(), ("torch",))
        self._alike[code, *shapes] += 1
        if self.products == _ATTENTION + 1:
            self.third = code

    def are_heads(self) -> bool:
        """Whether the products are one attention's, head by head: the same code, of parts that make up x's features, or
        each as wide as x."""
        times = {*self._alike.values()}
        last = [shapes[-1] for _, *shapes in self._alike]
        of_items = all(shape[:-2].numel() == self._sizes[0] for shape in last)  # type: ignore[index]
        widths = {shape[-1] for shape in last}  # type: ignore[index]
        own = {self._shape[-1] // max(times), self._shape[-1]}
        return len(last) == _ATTENTION and of_items and len(times) == 1 and not own.isdisjoint(widths)

    def _is_of_weighted(self, given: list[Tensor]) -> bool:
        """Whether a product is of weights that no product was taken for, with the values."""
        weighted = self._softmax and not self._scores and all(map(self._depends, given[-2:]))
        return weighted and self._is_of_scores(given[-2])

    def _is_of_scores(self, value: Tensor) -> bool:
        """Whether it has one number for each query and key."""
        S = self._sizes[1]
        return value.ndim > 2 and tuple(value.shape[-2:]) == (S, S)


def beyond(module: nn.Module, run: Callable[[Tensor], Any], x: Tensor, layout: Layout) -> Mapping[Feature, str]:
    """What a layer does with x that the specification has not, the most telling first, and the line where it is seen
    first, as `model.py:12: x = self.attend(x)`; "" where no one line has it."""
    seen = _Operators(module, x, layout)
    with suppress(Exception), torch.no_grad():
        with seen, seen.recurrent(module):
            run(x)
        sums, layers = sums_in(module, lambda: run(x)), max(1, seen.products // _ATTENTION)
        if len(sums) > _SUMS * layers:
            seen.found["sums"] = _one_too_many(sums, _SUMS * layers)
        is_stack = not seen.products % _ATTENTION and len(sums) >= _SUMS * layers
        if seen.products > _ATTENTION and not is_stack and not (len(sums) <= _SUMS and seen.are_heads()):
            seen.found["products"] = seen.third
    return {each: seen.found[each] for each in _ORDER if each in seen.found}


def _one_too_many(sums: Sequence[ResidualSum], due: int) -> str:
    """The line of a sum beside those that are due: of one of heads, where those are as many; else of the first more."""
    shapes = Counter(each.shape for each in sums)
    seldom = min(shapes, key=lambda shape: shapes[shape])
    if len(sums) - shapes[seldom] == due:
        return next(each.line for each in sums if each.shape == seldom)
    return sums[due].line


def _tensors(values: Any) -> Iterator[Tensor]:
    for each in values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)


def _place(value: Tensor) -> int:
    """Where its numbers are, whatever their shape."""
    return int(value.untyped_storage().data_ptr())


def _turns(matrices: Tensor) -> bool:
    """Whether matrices [..., K, K] only turn what is multiplied with them, as rotary positions written so do."""
    *_, rows, columns = matrices.shape
    if rows != columns or not matrices.is_floating_point():
        return False
    each = matrices.double()
    return bool(((each @ each.mT) - torch.eye(rows, dtype=torch.float64)).abs().max() < _NEAR)
