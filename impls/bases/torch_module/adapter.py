"""Drives a layer that is somebody's own torch.nn.Module: parameters in and out, outputs, hooks, gradients, refusals.

What is left to say of one such layer: how it is made, what its parameters are called, how it is called, and where its
stages are seen.
"""

from abc import abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_conformance import Adapter, Array, Environment, Fresh, Masks, ParameterMap, RunRequest, Tensors
from encoder_conformance.impls.bases.torch_module.gradients import gradients
from encoder_conformance.impls.bases.torch_module.seeding import seed_generators
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor

NARROW = ("dtype", "scalar type", "data type")
"""Words of the errors that PyTorch raises where the number formats of tensors do not agree."""


class TorchModule(Adapter):
    parameters: ClassVar[ParameterMap]
    packages: ClassVar[tuple[str, ...]] = ("torch", "numpy")
    shown: ClassVar[Mapping[str, str]] = {}
    """Stage → the submodule whose output it is; a tuple's first is meant."""
    entered: ClassVar[Mapping[str, str]] = {}
    """Stage → the submodule whose input it is."""
    attention: ClassVar[str] = "attention"
    """The submodule that is the layer's attention, and is all of it where the layer's `part` says so."""

    @abstractmethod
    def made(self, layer: dict[str, Any]) -> nn.Module:
        """The layer as its documentation has it, in the default dtype, with parameters of its own."""

    @abstractmethod
    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        """The output of `self.module`, x and output in this run's layout."""

    def start(self, device: str, threads: int) -> Environment:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        return Environment({name: version(name) for name in self.packages}, {"threads": torch.get_num_threads()})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.heads, self.dtype = layer, layer["attention"]["num_heads"], getattr(torch, dtype)
        self.module = self.part_of(self.made(layer)).to(self.dtype)
        own = self.parameters.to_own(parameters, layer)
        self.module.load_state_dict({name: to_tensor(value) for name, value in own.items()}, strict=True)
        return self.held()

    def part_of(self, made: nn.Module) -> nn.Module:
        """The layer's `part`: the whole of it, or its attention alone under the name that it has there."""
        alone = self.layer["part"] == "attention"
        return nn.ModuleDict({self.attention: made.get_submodule(self.attention)}) if alone else made

    def initialise(self, seed: int) -> Fresh:
        seed_generators(seed)
        self.module = self.made(self.layer).to(self.dtype)
        trained = [name for name, value in self.module.named_parameters() if value.requires_grad]
        return Fresh(self.held(), self.parameters.spec_names(trained))

    def held(self) -> Tensors:
        return self.parameters.to_spec({name: to_numpy(value) for name, value in self.module.state_dict().items()})

    @torch.no_grad()
    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return to_numpy(self.called(to_tensor(x), masks, run))

    @torch.no_grad()
    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        seen: Tensors = {}
        there = {name for name, _ in self.module.named_modules()}

        def keep(stage: str, value: Any) -> None:
            seen[stage] = to_numpy(value[0] if isinstance(value, tuple) else value)

        hooks = [
            *(
                self.module.get_submodule(name).register_forward_hook(lambda _, __, given, to=stage: keep(to, given))
                for stage, name in self.shown.items()
                if name in there
            ),
            *(
                self.module.get_submodule(name).register_forward_pre_hook(lambda _, taken, to=stage: keep(to, taken))
                for stage, name in self.entered.items()
                if name in there
            ),
        ]
        try:
            keep("output", self.called(to_tensor(x), masks, run))
        finally:
            for hook in hooks:
                hook.remove()
        return seen

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        given, wanted = to_tensor(x), dict[str, Tensor](self.module.named_parameters())
        if given.is_floating_point():  # and no token ids
            wanted["x"] = given.requires_grad_()
        memory = None if run.memory is None else to_tensor(run.memory).requires_grad_()
        if memory is not None:
            wanted["memory"] = memory
        if run.checkpoint:
            output = checkpoint(self.called, given, masks, run, memory, use_reentrant=False)
        else:
            output = self.called(given, masks, run, memory)
        found = gradients(list(wanted.values()), output, to_tensor(cotangent))
        by = dict(zip(wanted, map(to_numpy, found), strict=True))
        by_inputs: Tensors = {name: by.pop(name) for name in ("x", "memory") if name in by}
        return {**by_inputs, **self.parameters.to_spec(by)}

    def called(self, x: Tensor, masks: Masks, run: RunRequest, memory: Tensor | None = None) -> Tensor:
        """`memory` is the run's own, but where a gradient by it is asked for."""
        self.module.train(run.mode == "train")
        seed_generators(run.seed)  # what dropout draws from
        if run.memory is None:
            return self.forward(x, masks, run)
        return self.attended(x, to_tensor(run.memory) if memory is None else memory, masks.joined(self.heads))

    def attended(self, x: Tensor, memory: Tensor, allowed: Array | None) -> Tensor:
        """The output of attention alone, whose arguments are the query, the key, the value and a mask of ones."""
        mask = None if allowed is None else to_tensor(allowed)
        output: Tensor = self.module.get_submodule(self.attention)(x, memory, memory, mask)
        return output

    def refusal(self, operation: str, error: Exception) -> str | None:
        """PyTorch's modules raise RuntimeError or AssertionError, and say in words what does not fit."""
        if not isinstance(error, (RuntimeError, AssertionError)) or isinstance(error, NotImplementedError):
            return super().refusal(operation, error)
        if operation == "build":
            return "configuration"
        return "dtype" if any(word in str(error).lower() for word in NARROW) else "shape"


def set_epsilon(module: nn.Module, epsilon: float) -> None:
    """Set the epsilon of every LayerNorm in a layer whose constructor has no argument for it."""
    for norm in module.modules():
        if isinstance(norm, nn.LayerNorm):
            norm.eps = epsilon
