"""PyTorch: nn.Module."""

import gc
import logging
import random
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from encoder_conformance.impls.bases.torch_module.gradients import gradients
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.calling import signature_of
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.frameworks.torch_way_back import TorchWayBack
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Seen, Signature, joined, like_x, pieces
from encoder_conformance.readers.module_target.parts import Tree, walk
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_SEED = 1
"""Of dropout, in training."""
_QUANTISED = ("quantized", "qint", "bitsandbytes")


class TorchModule(LiveModule):
    library = str(Path(torch.__file__).parent)

    def __init__(self, module: nn.Module, signature: Signature) -> None:
        self.module, self.signature = module, signature
        kind = type(module)
        self.type_name = f"{kind.__module__}.{kind.__qualname__}"
        first = {id(value): name for name, value in module.named_parameters()}
        every = module.named_parameters(remove_duplicate=False)
        self.aliases = {name: first[id(value)] for name, value in every if first[id(value)] != name}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self.module.named_parameters()}

    def flat(self) -> Array:
        return joined(map(to_numpy, self.module.parameters()))

    def assign(self, flat: Array) -> None:
        with torch.no_grad():
            for value, piece in zip(self.module.parameters(), pieces(flat, self.shapes.values()), strict=True):
                value.copy_(to_tensor(piece))

    def call(self, feeds: Feeds) -> Array:
        with torch.no_grad():
            return to_numpy(self._output(feeds)[1])

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""
        with torch.enable_grad():
            x, output = self._output(feeds, grad=True)
        seed = to_tensor(np.ascontiguousarray(cotangent))
        by_x, *own = gradients([x, *self.module.parameters()], output, seed)
        return to_numpy(by_x), joined(map(to_numpy, own))

    def in_training(self, feeds: Feeds) -> LiveModule:
        return _InTraining(deepcopy(self.module).train(), self.signature)

    def way_back(self, feeds: Feeds, masked: Feeds, cotangent: Array) -> Iterator[WayBackAnswer]:
        def call(x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
            return called(self.module, self.signature, x, masks)

        written = TorchWayBack(self.module, call, masked, cotangent).written()
        yield written
        if written.outcome == "pass":
            yield from TorchWayBack(self.module, call, feeds, cotangent).answers()

    def _output(self, feeds: Feeds, *, grad: bool = False) -> tuple[Tensor, Tensor]:
        tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in feeds.items()}
        x = tensors.pop("x").requires_grad_(grad)
        return x, called(self.module, self.signature, x, tensors)

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        """Run as for gradients, for which no fused path leaves submodules out."""
        seen: Seen = {}

        def keep(name: str, side: str, value: Any) -> None:
            values = value if isinstance(value, (tuple, list)) else (value,)
            for index, each in enumerate(values):
                if isinstance(each, Tensor) and each.is_floating_point():
                    seen[name, side, index] = to_numpy(each.detach())

        hooks = []
        for name, each in self.module.named_modules():
            if name and (only is None or name in only):
                hooks.append(each.register_forward_pre_hook(lambda _, given, to=name: keep(to, "input", given)))
                hooks.append(each.register_forward_hook(lambda _, __, answer, to=name: keep(to, "output", answer)))
        try:
            with torch.enable_grad():
                output = self._output(feeds)[1]
        finally:
            for hook in hooks:
                hook.remove()
        return seen, to_numpy(output.detach())

    def in_dtype(self, dtype: str) -> "TorchModule":
        return TorchModule(deepcopy(self.module).to(getattr(torch, dtype)), self.signature)

    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        """Raises ExecutionError for a module that writes into x by `.data`: PyTorch's exporter ends the process."""
        x = torch.ones(x_shape)
        with torch.no_grad():
            called(self.module, self.signature, x, {})
        if not x._version and not bool((x == 1).all()):
            raise ExecutionError("it writes into x, unseen by autograd, and is not exported")
        return exported(lambda x: called(self.module, self.signature, x, {}), x_shape, self.module)

    def objects(self) -> Iterator[object]:
        yield from self.module.modules()


class _InTraining(TorchModule):
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
        copied = TorchModule(deepcopy(self.module), self.signature)
        for generator in (torch.manual_seed, random.seed, np.random.seed):
            generator(_SEED)
        with torch.enable_grad():
            x, output = copied._output(feeds, grad=True)
        return [x, *copied.module.parameters()], output


class _OfFunction(nn.Module):
    """A function of x as a module. `module`: whose parameters it takes."""

    def __init__(self, function: Callable[[Tensor], Tensor], module: nn.Module | None) -> None:
        super().__init__()
        self.module, self._function = module, function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


def exported(
    function: Callable[[Tensor], Tensor], x_shape: tuple[int, ...], module: nn.Module | None = None
) -> onnx.ModelProto:
    """Exports a function of x, and of the parameters of `module`. Every node keeps the line of source that it is of."""
    warnings.filterwarnings("ignore", module="torch|copyreg")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    gc.freeze()  # the exporter makes millions of objects, and the collector looks through all that there are
    try:
        alone = _OfFunction(function, module).eval()
        program = torch.onnx.export(alone, (torch.zeros(x_shape),), dynamo=True, verbose=False)
    finally:
        gc.unfreeze()
    model: onnx.ModelProto = program.model_proto
    return model


def called(module: nn.Module, signature: Signature, x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
    """The output, in the layout of x."""
    answer = module(x, **{**signature.fixed, **masks})
    found: Tensor = like_x(answer, x, lambda value: isinstance(value, Tensor))
    return found


class _TorchTree:
    def children(self, module: nn.Module) -> Mapping[str, nn.Module]:
        return dict(module.named_children())

    def is_container(self, module: nn.Module) -> bool:
        return isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict))

    def matrices(self, module: nn.Module) -> int:
        return sum(value.ndim == 2 for value in module.parameters())


class _PyTorch(ModuleFramework):
    name = "PyTorch"
    packages = ("torch", "transformers")
    tree: Tree = _TorchTree()

    def owns(self, found: object) -> bool:
        return isinstance(found, nn.Module)

    def refuse_unfit(self, module: nn.Module) -> None:
        for name, each in walk(self.tree, module):
            if any(word in f"{type(each).__module__}.{type(each).__name__}".lower() for word in _QUANTISED):
                problem = f"{name or 'it'} is {type(each).__name__}: a quantised module holds integers, of which σ"
                raise BadTarget(f"{problem} says nothing", "check the module before")
        if any(value.is_meta for value in module.parameters()):
            problem = "its parameters are on the device 'meta' and have no numbers"
            raise BadTarget(problem, "give them some: module.to_empty")
        kinds = {name: type(each).__name__ for name, each in module.named_modules()}
        convolution = next((name for name, kind in kinds.items() if kind.startswith("Conv") and name), None)
        linear = "Conv1D" in kinds.values() or any(isinstance(each, nn.Linear) for each in module.modules())
        if convolution and not linear:  # GPT-2's Conv1D is a linear map
            raise BadTarget(f"{convolution} is a convolution, and no part of an encoder layer")
        if not list(module.parameters()):
            raise BadTarget(f"{type(module).__name__} has no parameters", "an encoder layer has norms and weights")

    def live(self, module: nn.Module) -> LiveModule:
        torch.set_float32_matmul_precision("highest")
        try:
            copied = deepcopy(module).to("cpu", torch.float32).eval().requires_grad_(True)
        except Exception as error:
            hint = "name a function that makes it"
            raise BadTarget(f"it cannot be copied: {type(error).__name__}: {error}", hint) from None
        name = f"{type(module).__name__}.forward"
        return TorchModule(copied, signature_of(copied.forward, name, flags=False))

    def notes(self, module: nn.Module) -> tuple[str, ...]:
        others = {str(value.dtype).removeprefix("torch.") for value in module.parameters()} - {"float32", "float64"}
        devices = {value.device.type for value in module.parameters()} - {"cpu"}
        judged = "a copy of it is judged, in float32 on the CPU"
        return tuple(f"its parameters are {each}; {judged}" for each in {*others, *devices})

    @contextmanager
    def undisturbed(self) -> Generator[None]:
        """Without the fused path of nn.TransformerEncoder: it gives shorter outputs where all items end in padding."""
        fast, precision = torch.backends.mha.get_fastpath_enabled(), torch.get_float32_matmul_precision()
        drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)
            torch.backends.mha.set_fastpath_enabled(fast)
            torch.set_float32_matmul_precision(precision)


FRAMEWORK = _PyTorch()
