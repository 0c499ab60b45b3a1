"""A live module of PyTorch: its weights, its calls in every way, its gradients, and its export."""

import random
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from encoder_conformance.impls.bases.torch_module.gradients import gradients
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling import drops_unless_told, turned_to_training
from encoder_conformance.readers.module_target.dropping import Trained
from encoder_conformance.readers.module_target.frameworks.kept_exports import recalled_or
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import (
    bare,
    copy_of,
    inside,
    is_compiled,
    plain_name,
    wrappers,
)
from encoder_conformance.readers.module_target.frameworks.pytorch_unregistered import unregistered
from encoder_conformance.readers.module_target.frameworks.torch_called import called
from encoder_conformance.readers.module_target.frameworks.torch_calls import MADE_BY, Calls, key_of
from encoder_conformance.readers.module_target.frameworks.torch_casts import cast_at
from encoder_conformance.readers.module_target.frameworks.torch_draws import drawn_at
from encoder_conformance.readers.module_target.frameworks.torch_drops import trained
from encoder_conformance.readers.module_target.frameworks.torch_drops_compiled import graph_drops
from encoder_conformance.readers.module_target.frameworks.torch_export import exported
from encoder_conformance.readers.module_target.frameworks.torch_formats import in_format, numbers_of
from encoder_conformance.readers.module_target.frameworks.torch_generators import generator_answer
from encoder_conformance.readers.module_target.frameworks.torch_in_model import attention_of, call_of
from encoder_conformance.readers.module_target.frameworks.torch_state import TorchState, written_by
from encoder_conformance.readers.module_target.frameworks.torch_steps import beyond
from encoder_conformance.readers.module_target.frameworks.torch_undropped import NothingDropped, refuse_another
from encoder_conformance.readers.module_target.frameworks.torch_way_back import TorchWayBack
from encoder_conformance.readers.module_target.frameworks.torch_ways import (
    COMPILING,
    OVERRIDDEN,
    THREADS,
    TRACING,
    WayToCall,
    as_it_is,
    every_other,
    turned,
)
from encoder_conformance.readers.module_target.live import (
    Feeds,
    HeldState,
    LiveModule,
    Loose,
    Seen,
    Signature,
    TakesItems,
    joined,
    pieces,
)
from encoder_conformance.readers.module_target.remembering import kept_by_masks, kept_by_object
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

_SEED = 1
"""Of dropout, in training."""
_DOT = "·"
"""A dot in the path of a weight that is registered under it: PyTorch takes no dots in a name."""


class TorchModule(LiveModule):
    """`module`: the one inside of what was given, which has all parameters. `way`: how it is called."""

    library = str(Path(torch.__file__).parent)
    may_take_items: TakesItems = "one by one"

    def __init__(self, given: nn.Module, signature: Signature, way: WayToCall) -> None:
        self.given, self.module, self.signature, self.way = given, inside(given), signature, way
        kind = type(self._layer)
        self.type_name = f"{kind.__module__}.{kind.__qualname__}"
        self.attention = attention_of(self._layer)
        first = {id(value): name for name, value in self.module.named_parameters()}
        every = self.module.named_parameters(remove_duplicate=False)
        if call := call_of(self.module):
            self.supplied, self.supplied_by = call.given, type(call.model).__name__
            self.length, self.called_with = 0 if call.free else call.length, call.said
            self.untrained = call.untrained
        self.aliases = {name: first[id(value)] for name, value in every if first[id(value)] != name}
        self._before: HeldState | None = None
        """What it held before its first call, where its answers depend on that: it is had again before every call."""

    @property
    def _layer(self) -> nn.Module:
        """The user's own module."""
        call = call_of(self.module)
        return self.module if call is None else call.layer

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        named = self.module.named_parameters()
        return {plain_name(name).replace(_DOT, "."): tuple(value.shape) for name, value in named}

    def flat(self) -> Array:
        return joined(map(to_numpy, self.module.parameters()))

    def assign(self, flat: Array) -> None:
        with torch.no_grad():
            for value, piece in zip(self.module.parameters(), pieces(flat, self.shapes.values()), strict=True):
                value.copy_(to_tensor(piece))

    def call(self, feeds: Feeds) -> Array:
        with torch.inference_mode(self.way.inference), torch.set_grad_enabled(self.way.gradients):
            return to_numpy(self._output(feeds)[1].detach())

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""
        with torch.enable_grad():
            x, output = self._output(feeds, grad=True)
        seed = to_tensor(np.ascontiguousarray(cotangent))
        by_x, *own = gradients([x, *self.module.parameters()], output, seed)
        return to_numpy(by_x), joined(map(to_numpy, own))

    def in_training(self, feeds: Feeds) -> LiveModule:
        return InTraining(self._copy().train(), turned_to_training(self.signature), self.way)

    def trains_unless_told(self, feeds: Feeds) -> bool:
        return drops_unless_told(self.signature, lambda each: TorchModule(self.given, each, self.way), feeds)

    def trained(self, feeds: Feeds) -> Trained:
        """Of compiled code, what its own code drops."""
        copied = TorchModule(self._copy().train(), turned_to_training(self.signature), WayToCall(bare=True))
        return trained(copied._layer, copied._of_tensors, feeds)

    def trained_compiled(self, feeds: Feeds) -> tuple[Trained, tuple[Array, Array]] | None:
        if not is_compiled(self.given):
            return None
        copied = TorchModule(self._copy().train(), turned_to_training(self.signature), replace(self.way, bare=False))
        seen = trained(copied._layer, copied._of_tensors, feeds, graph_drops())
        return seen, (copied.call(feeds), copied.call(feeds))

    def generators(self, feeds: Feeds) -> WayBackAnswer:
        copies = {"in evaluation": self._copy(), "in training": self._copy().train()}
        calls = {mode: TorchModule(each, self.signature, self.way)._of_tensors for mode, each in copies.items()}
        return generator_answer(calls, feeds)

    def held(self) -> TorchState:
        return TorchState(self._layer)

    def kept(self, feeds: Feeds) -> Kept | None:
        def run(feeds: Feeds) -> Array:
            self.seed()
            return self.run(feeds)["output"]

        found = kept_by_object(run, self.held, feeds, partial(self.written_at, feeds=feeds))
        if found is not None and found[0].apart:
            self._before = found[1]
        return None if found is None else found[0]

    def start_from(self, held: HeldState) -> None:
        self._before = held

    def kept_with_masks(self, plain: Feeds, masked: Feeds) -> Kept | None:
        fresh, self._before = self._before or self.held(), None
        place = partial(self.written_at, feeds=masked)
        found = kept_by_masks(lambda feeds: self.run(feeds)["output"], fresh, plain, masked, place)
        self._before = fresh if found is not None and found.apart else None
        return found

    def written_at(self, name: str, feeds: Feeds) -> str:
        return written_by(self._layer, name, lambda: self.bare().run(feeds))

    def _copy(self) -> nn.Module:
        if self._before:
            self._before.restore()
        return copy_of(self.given)

    def way_back(self, feeds: Feeds, masked: Feeds, cotangent: Array) -> Iterator[WayBackAnswer]:
        call = self._of_tensors
        written = TorchWayBack(self.module, call, masked, cotangent).written()
        yield written
        if written.outcome == "pass":
            yield from TorchWayBack(self.module, call, feeds, cotangent).answers()

    def _output(self, feeds: Feeds, *, grad: bool = False) -> tuple[Tensor, Tensor]:
        if self._before:
            self._before.restore()
        tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in feeds.items()}
        x = tensors.pop("x")
        x = (self.way.view or as_it_is)(x).requires_grad_(grad)
        tensors = {name: (self.way.view_of_masks or as_it_is)(mask) for name, mask in tensors.items()}
        return x, self._of_tensors(x, tensors)

    def _of_tensors(self, x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
        with self.way.taken(self.given):
            return called(self.module if self.way.bare else self.given, self.signature, x, masks)

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        """Run as for gradients, for which no fused path leaves submodules out. What is mapped over by `torch.func` has
        no numbers of its own inside, and is left out."""
        seen: Seen = {}

        def keep(name: str, side: str, value: Any) -> None:
            values = value if isinstance(value, (tuple, list)) else (value,)
            for index, each in enumerate(values):
                if isinstance(each, Tensor) and each.is_floating_point() and not is_functorch_wrapped_tensor(each):
                    seen[name, side, index] = to_numpy(each.detach())

        hooks = []
        for name, each in self.module.named_modules():
            takes_hooks = not isinstance(each, torch.jit.ScriptModule)
            if name and takes_hooks and (only is None or name in only):
                hooks.append(each.register_forward_pre_hook(lambda _, given, to=name: keep(to, "input", given)))
                hooks.append(each.register_forward_hook(lambda _, __, answer, to=name: keep(to, "output", answer)))
        try:
            with torch.enable_grad():
                output = self.bare()._output(feeds)[1]
        finally:
            for hook in hooks:
                hook.remove()
        return seen, to_numpy(output.detach())

    def in_dtype(self, dtype: str) -> "TorchModule":
        copied = in_format(self._copy(), getattr(torch, dtype))
        if dtype == self.own_format:
            for name, value in numbers_of(inside(copied)):
                value.data = value.data.to(getattr(torch, self.formats.get(name, dtype)))
        made = self._like(copied, self.way)
        made._before = made.held() if self._before else None
        return made

    def _like(self, given: nn.Module, way: WayToCall) -> "TorchModule":
        other = TorchModule(given, self.signature, way)
        other.seeded, other.formats, other.own_format = self.seeded, self.formats, self.own_format
        other._before = self._before
        return other

    @property
    def wrappers(self) -> tuple[str, ...]:
        return wrappers(self.given)

    def arranged(self, arrangement: Arrangement) -> "TorchModule":
        other = self._like(self.given, self.way)
        other.signature = self.signature.arranged(arrangement)
        return other

    def bare(self) -> "TorchModule":
        return self._like(self.given, WayToCall(bare=True))

    def ways(self) -> Mapping[str, LiveModule]:
        found = {
            "with gradients and without": WayToCall(gradients=True),
            "in inference mode and without": WayToCall(inference=True),
            "on one thread and on several": WayToCall(threads=THREADS),
            "under torch.device and without": OVERRIDDEN,
            "an x in one piece and one that was turned": WayToCall(view=turned),
            "an x in one piece and every other number of a larger one": WayToCall(view=every_other),
            "masks in one piece and such that were turned": WayToCall(view_of_masks=turned),
            "masks in one piece and every other number of larger ones": WayToCall(view_of_masks=every_other),
        }
        if not self.wrappers:
            found["what it gives where PyTorch says that it is compiled and else"] = WayToCall(told=COMPILING)
            found["what it gives where PyTorch says that it is traced and else"] = WayToCall(told=TRACING)
        if self.wrappers:
            found["compiled and eager" if is_compiled(self.given) else "wrapped and bare"] = WayToCall(bare=True)
        if any(isinstance(each, nn.MultiheadAttention) for each in self.module.modules()):
            found["PyTorch's fused path and its own code"] = WayToCall(fused=True)
        ways: dict[str, LiveModule] = {said: self._like(self.given, way) for said, way in found.items()}
        if self.wrappers:  # of compiled code nothing is taken out
            return ways
        undropped = Undropped(self.given, self.signature, self.way)
        undropped._before = self._before
        return {**ways, "in training, with nothing dropped, and in evaluation,": undropped}

    def mixed_precision(self) -> Mapping[str, LiveModule]:
        return {"under torch.autocast in bfloat16 and without": self._like(self.given, WayToCall(autocast=True))}

    def take_in(self, feeds: Feeds) -> Loose:
        """Those of a closure are named alone: a copy has the original's."""

        def output() -> Tensor:
            return self._output(feeds)[1]

        with torch.no_grad():
            right = output()
            held = [each for each in unregistered(self._layer) if each.changes(output, right)]
        for each in held:
            if each.is_weight and not each.shared:
                self.module.register_parameter(each.path.replace(".", _DOT), cast(nn.Parameter, each.value))
        in_format(self.module, torch.float32)
        paths = {
            is_weight: tuple(each.path for each in held if each.is_weight == is_weight) for is_weight in (True, False)
        }
        return Loose(weights=paths[True], tensors=paths[False])

    def beyond(self, x: Array, layout: Layout) -> Mapping[Feature, str]:
        with bare(self.given):  # what is called under a mode of the dispatcher is never compiled again
            return beyond(self.module, lambda x: called(self.module, self.signature, x, {}), to_tensor(x), layout)

    def drawn_at(self, feeds: Feeds) -> str:
        with bare(self.given):
            return drawn_at(lambda: called(self.module, self.signature, to_tensor(feeds["x"]), {}))

    def cast_at(self, feeds: Feeds) -> Mapping[str, str]:
        with bare(self.given):
            return cast_at(lambda: called(self.module, self.signature, to_tensor(feeds["x"]), {}))

    def seed(self) -> bool:
        torch.manual_seed(0)
        return True

    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        return self._exported(x_shape, simplified=True)

    def export_as_it_is(self, x_shape: tuple[int, ...]) -> onnx.ModelProto | None:
        """PyTorch's exporter leaves out what it takes for 0, as an epsilon of 1e-12."""
        return self._exported(x_shape, simplified=False)

    def _exported(self, x_shape: tuple[int, ...], *, simplified: bool) -> onnx.ModelProto:
        """Raises ExecutionError for a module that writes into x by `.data`: PyTorch's exporter ends the process."""
        if isinstance(self.module, torch.jit.ScriptModule):
            raise ExecutionError("torch.jit has made it a graph of its own: check the module before that")
        x = torch.ones(x_shape)
        with bare(self.given):
            calls = self._calls(x)
            if not x._version and not bool((x == 1).all()):
                raise ExecutionError("it writes into x, unseen by autograd, and is not exported")
            function = partial(called, self.module, self.signature, masks={})
            export = partial(exported, function, x_shape, self.module, simplified=simplified)
            key = None if calls is None else [*key_of(self.module, calls), x_shape, simplified]
            return recalled_or(export, key, MADE_BY)

    def _calls(self, x: Tensor) -> Calls | None:
        """The calls of operators that it makes of x; None for one that cannot be seen."""
        for seen in (Calls(), None):
            if self._before:
                self._before.restore()
            with suppress(Exception) if seen else nullcontext(), torch.no_grad(), seen or nullcontext():
                output = called(self.module, self.signature, x, {})
                if seen:
                    seen.give(output)
                return seen
        return None

    def objects(self) -> Iterator[object]:
        yield from self._layer.modules()


class InTraining(TorchModule):
    """A module in training, as it is before each call: generators, counters and buffers of its own, too."""

    def call(self, feeds: Feeds) -> Array:
        """The output of the run that gradients are taken of."""
        return to_numpy(self._run(feeds)[1].detach())

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""
        wanted, output = self._run(feeds)
        by_x, *own = gradients(wanted, output, to_tensor(np.ascontiguousarray(cotangent)))
        return to_numpy(by_x), joined(map(to_numpy, own))

    def backward_twice(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array] | None:
        """All gradients of one output, [n], asked twice."""
        wanted, output = self._run(feeds)
        seed = to_tensor(np.ascontiguousarray(cotangent))
        try:
            one, other = (joined(map(to_numpy, gradients(wanted, output, seed, keep=True))) for _ in range(2))
        except RuntimeError:  # what its way back needs is gone after the first
            return None
        return one, other

    def _run(self, feeds: Feeds) -> tuple[list[Tensor], Tensor]:
        """x and the parameters of a copy, and its output."""
        copied = TorchModule(copy_of(self.given), self.signature, self.way)
        for generator in (torch.manual_seed, random.seed, np.random.seed):
            generator(_SEED)
        with torch.enable_grad():
            x, output = copied._output(feeds, grad=True)
        return [x, *copied.module.parameters()], output


class Undropped(TorchModule):
    """A module in training of which nothing is dropped."""

    def call(self, feeds: Feeds) -> Array:
        """Raises ExecutionError where it draws otherwise than by dropout."""
        refuse_another(*(self._like(self.given, each).call(feeds) for each in (WayToCall(), OVERRIDDEN)))
        copied = TorchModule(self._copy().train(), self.signature, self.way)
        with torch.no_grad(), NothingDropped():
            return to_numpy(copied._output(feeds)[1])
