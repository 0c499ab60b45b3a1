"""A layer of a PyTorch model, called as the model calls it: with what the model's own modules make beside it."""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.calling import may_be_mask, signature_of
from encoder_conformance.readers.module_target.frameworks.torch_beside import leaves, parameters_beside
from encoder_conformance.readers.module_target.frameworks.torch_inputs import Inputs
from encoder_conformance.readers.module_target.frameworks.torch_layers_called import LISTS, SIZES, Found, ways_of

_LONG = (300, 66)
"""Lengths beyond usual windows: the first that is taken."""
_DOT = "·"
_SHUT = -1e3
"""Numbers below hide, where a mask is added to scores."""
_ROUNDED = 1e-5
"""How far numbers of float32 are apart at most that another order of the same sums makes, of numbers about 1."""


class _Reached(BaseException):
    """A layer was reached, with these arguments: the rest of the model need not run. No `except Exception` stops it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__()
        self.given = given


def arguments_of(model: nn.Module, path: str, work: Callable[[], Any]) -> dict[str, Any]:
    """What the model gives its layer while `work` runs it, by name, x first. Raises LookupError where it is not
    reached, or whatever the model does."""
    layer = model.get_submodule(path)
    signature = inspect.signature(layer.forward)

    def stop(part: nn.Module, given: Any, named: Any) -> None:
        bound = signature.bind(*given, **named).arguments
        free = [p.name for p in signature.parameters.values() if p.kind == p.VAR_KEYWORD]
        flat = {name: value for name, value in bound.items() if name not in free}
        raise _Reached(flat | {name: value for each in free for name, value in bound.get(each, {}).items()})

    hook = layer.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        work()
    except _Reached as reached:
        return dict(reached.given)
    finally:
        hook.remove()
    raise LookupError(f"{path} is not called")


class LayerCall:
    """How a model calls one of its layers: what it gives beside x, for any batch and length.

    `formats`: own parameter or buffer → the format that the model was given with. `borrowed`: parameters of the model
    that what it gives is made of; `untrained`: those of them that get no gradient by it.
    """

    def __init__(self, model: nn.Module, found: Found) -> None:
        """Raises whatever the model does where it is run."""
        self.path, self.way = found.path, found.way
        self.formats: Mapping[str, str] = {}
        self._inputs: dict[tuple[int, int], Inputs] = {}
        self.hold(model, model.get_submodule(found.path))
        self._look()
        self.borrowed, self.untrained = parameters_beside(model, self.layer, lambda: self._beside(*SIZES[0], None))

    @property
    def said(self) -> str:
        """The shape of x, and of which batch."""
        return f"{list(self.shape)} for a batch of {SIZES[0][0]}"

    def hold(self, model: nn.Module, layer: nn.Module) -> None:
        self.model, self.layer = model, layer
        self._made: dict[Any, dict[str, Any]] = {}

    def of(self, model: nn.Module, layer: nn.Module) -> "LayerCall":
        """The same of a copy."""
        other = copy(self)
        other.hold(model, layer)
        return other

    def _look(self) -> None:
        """Find out what the model gives, what of it depends on the length, and what is a mask of its own."""
        seen = [self.arguments(*sizes) for sizes in SIZES]
        self.x, *_ = seen[0]
        shapes = [tuple(each[self.x].shape) for each in seen]
        self.d_model = shapes[0][-1]
        self.swapped = shapes == [(S, B, self.d_model) for B, S in SIZES]
        self.free = self.swapped or shapes == [(B, S, self.d_model) for B, S in SIZES]
        self.length, self.shape = shapes[0][-2], shapes[0]
        self._twice = tuple(name for name, value in seen[0].items() if name != self.x and value is seen[0][self.x])
        given = {name: value for name, value in seen[0].items() if name not in (self.x, *self._twice)}
        self._arrays = tuple(name for name, value in given.items() if _is_array(value))
        longest = self._longest() if self.free else seen[0]
        own_masks = [name for name in longest if may_be_mask(name) and _hides(longest[name])]
        self._fixed = {name: value for name, value in given.items() if name not in self._arrays}
        needed = self._needed_masks(seen[0])
        opened = tuple(name for name in needed if name not in own_masks)
        own_masks += needed
        self.by_model = self.free and ((bool(own_masks) and self._takes_mask()) or self._enters_elsewhere())
        self.given = tuple(name for name in self._arrays if name in own_masks or not may_be_mask(name))
        self.masks = ("attention_mask",) if self.by_model else self._masks_of_layer(opened)
        if not self.given and not self.by_model and self._answers_without(seen[0]):
            self._arrays = ()

    def _needed_masks(self, given: Mapping[str, Any]) -> list[str]:
        """The masks that the model gives, where the layer refuses to be called without."""
        masks = [name for name, value in given.items() if may_be_mask(name) and _is_array(value)]
        try:
            with torch.no_grad():
                self.layer(**{name: None if name in masks else value for name, value in given.items()})
        except Exception:
            return masks
        return []

    def _takes_mask(self) -> bool:
        """Whether the model can be told of padding: one that hides later positions alone need not be."""
        try:
            self.arguments(*SIZES[0], torch.ones(*SIZES[0], dtype=torch.int64))
        except Exception:
            return False
        return True

    def _answers_without(self, given: Mapping[str, Any]) -> bool:
        """Whether the masks that it is given, which hide nothing, change nothing: it is then called without, for more
        positions than its model may take. PyTorch may compute in another order beside a mask, and rounds otherwise."""
        bare = {name: value for name, value in given.items() if name not in self._arrays}
        try:
            with torch.no_grad():
                return same(self.layer(**bare), self.layer(**given), _ROUNDED)
        except Exception:
            return False

    def _masks_of_layer(self, opened: Collection[str]) -> tuple[str, ...]:
        """A layer that takes x twice, as key or value, needs them, and no second sequence. `opened`: the masks without
        which it is not called, and that hide nothing as the model makes them: others can be given in their place."""
        own = [name for name in inspect.signature(self.layer.forward).parameters if may_be_mask(name)]
        if not self._twice:
            own = [*signature_of(self.layer.forward, type(self.layer).__name__, keys=False).masks]
        return tuple(name for name in own if name not in self.given or name in opened)

    def _longest(self) -> Mapping[str, Any]:
        for sequence in _LONG:
            with suppress(Exception):
                return self.arguments(1, sequence)
        return self.arguments(*SIZES[0])

    def _enters_elsewhere(self) -> bool:
        """Whether padding that the model is told of changes another argument than the layer's mask."""
        B, S = SIZES[0]
        padded = torch.ones(B, S, dtype=torch.int64)
        padded[-1, -2:] = 0
        try:
            open_, shut = self.arguments(B, S), self.arguments(B, S, padded)
        except Exception:
            return False
        names = [name for name in open_ if name != self.x and not may_be_mask(name)]
        return any(not same(open_[name], shut.get(name)) for name in names)

    def arguments(self, batch: int, sequence: int, mask: Tensor | None = None) -> dict[str, Any]:
        """What the model gives the layer, x first."""
        with torch.no_grad():
            return self._arguments(batch, sequence, mask)

    def _arguments(self, batch: int, sequence: int, mask: Tensor | None) -> dict[str, Any]:
        """An input is drawn once: an exporter follows no generator."""
        if (batch, sequence) not in self._inputs:
            self._inputs[batch, sequence] = self.way.inputs(self.model, batch, sequence)
        inputs = self._inputs[batch, sequence]
        return arguments_of(self.model, self.path, lambda: self.way.run(self.model, inputs, mask))

    def _beside(self, batch: int, sequence: int, mask: Tensor | None) -> dict[str, Any]:
        given = self._arguments(batch, sequence, mask)
        return {name: value for name, value in given.items() if name not in (self.x, *self._twice)}

    def output(self, x: Tensor, given: dict[str, Any]) -> Any:
        """The answer of the layer. `given`: arguments of it; where the model makes the masks, its mask [B, S]."""
        mask = given.pop("attention_mask", None) if self.by_model else None
        return self.layer(x, **{**self._beside_of(x, mask), **dict.fromkeys(self._twice, x), **given})

    def _beside_of(self, x: Tensor, mask: Tensor | None) -> dict[str, Any]:
        """What the model gives beside this x, [B, S, D] or [S, B, D]."""
        if not self._arrays and not self.by_model:
            return self._fixed
        batch, sequence = x.shape[1::-1] if self.swapped else x.shape[:2]
        if mask is not None and mask.shape != (batch, sequence):
            raise ValueError(f"the mask that its model takes is {[batch, sequence]}, and not {list(mask.shape)}")
        if not self.free and sequence != self.length:
            names = ", ".join(self._arrays)
            raise ValueError(f"its model gives it {names} for {self.length} positions, and for no other number")
        key = batch, sequence, x.dtype
        if mask is None and key in self._made:
            return self._made[key]
        made = {name: _cast(value, x.dtype) for name, value in self._beside(batch, sequence, mask).items()}
        if mask is None and not self.borrowed and not torch.compiler.is_exporting():
            self._made[key] = made
        return made


class InModel(nn.Module):
    """A layer with its own parameters, buffers and parts, called as its model calls it.

    What the model gives beside x is made by the model, for the batch and length of each x; an argument that is given
    takes the place of the model's. Parameters of the model that those are made of are counted among its own. The model
    is shared with copies, and stays in float32, unless there are such parameters.
    """

    def __init__(self, call: LayerCall) -> None:
        super().__init__()
        self._follow(call)

    def _follow(self, call: LayerCall) -> None:
        """Any other attribute could have the name of one of the layer's parts."""
        self._call = call
        self._modules, self._buffers = call.layer._modules, call.layer._buffers
        borrowed = {name.replace(".", _DOT): call.model.get_parameter(name) for name in call.borrowed}
        self._parameters = {**call.layer._parameters, **borrowed}
        self.training = call.layer.training

    def forward(self, x: Tensor, **given: Any) -> Any:
        return self._call.output(x, given)

    def train(self, mode: bool = True) -> "InModel":
        self.training = mode
        self._call.layer.train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "InModel":
        call = self._call
        (call.model if call.borrowed else call.layer)._apply(fn, recurse)
        call.hold(call.model, call.layer)
        self._follow(call)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "InModel":
        call = self._call
        if call.borrowed:
            model = deepcopy(call.model, memo)
            return InModel(call.of(model, model.get_submodule(call.path)))
        return InModel(call.of(call.model, deepcopy(call.layer, memo)))


def call_of(module: nn.Module) -> LayerCall | None:
    """How its model calls a layer; None for a module that is called by itself."""
    return module._call if isinstance(module, InModel) else None


def attention_of(layer: nn.Module) -> str:
    """The implementation of attention that transformers takes for a layer, by the configuration that its parts keep."""
    configured = (getattr(getattr(part, "config", None), "_attn_implementation", None) for part in layer.modules())
    return next((name for name in configured if isinstance(name, str)), "")


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Numbers in this format, and within it."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != dtype:
        limit = min(torch.finfo(dtype).max, torch.finfo(value.dtype).max)
        return value.clamp(-limit, limit).to(dtype)
    if isinstance(value, Mapping):
        return {name: _cast(each, dtype) for name, each in value.items()}
    return type(value)(_cast(each, dtype) for each in value) if type(value) in (list, tuple) else value


def in_model(model: nn.Module, found: Found) -> InModel:
    """The layer as the model calls it; where that has an image or sound, as a part of it does that takes x of any
    length, if this gives the same. Raises whatever the model does."""
    call = LayerCall(model, found)
    if call.free or not call.given:
        return InModel(call)
    batch, _ = SIZES[0]
    parts = found.path.split(".")
    for root in (".".join(parts[:number]) for number in range(len(parts))):
        if len(root) <= len(found.way.root) or isinstance(model.get_submodule(root), LISTS):
            continue
        for way in ways_of(model, root):
            with suppress(Exception, _Reached):
                other = LayerCall(model, Found(found.path, way))
                one, two = other.arguments(batch, call.length), call.arguments(batch, call.length)
                if other.free and all(same(one.get(name), two.get(name)) for name in call.given):
                    return InModel(other)
    return InModel(call)


def _is_array(value: Any) -> bool:
    return any(True for _ in leaves([value]))


def _hides(value: Any) -> bool:
    """Whether a mask of a model's own hides something: one that says the same everywhere hides nothing, whatever it
    means."""
    return any(
        bool((~each).any() and each.any()) if each.dtype == torch.bool else bool((each < _SHUT).any())
        for each in leaves([value])
    )


def same(one: Any, other: Any, apart: float = 0.0) -> bool:
    """Whether both have tensors of the same shapes and numbers, or of numbers that are so far `apart` at most."""
    pairs = [*leaves([one])], [*leaves([other])]
    return len(pairs[0]) == len(pairs[1]) and all(
        a.shape == b.shape and (torch.equal(a, b) if not apart else torch.allclose(a, b, rtol=apart, atol=apart))
        for a, b in zip(*pairs, strict=True)
    )
