"""A module of PyTorch compiled, exported or under autocast, beside itself: its output, and what its submodules give."""

from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import bare, compiled_for_each_shape
from encoder_conformance.readers.module_target.frameworks.torch_called import called
from encoder_conformance.readers.module_target.frameworks.torch_flex import FLEX_ATTENTION
from encoder_conformance.readers.module_target.frameworks.torch_live import TorchModule
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Seen
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


class _Shown(nn.Module):
    """A module that returns what its submodules take and give beside its answer, so that a graph of it does."""

    def __init__(self, module: nn.Module, only: frozenset[str] | None) -> None:
        super().__init__()
        self.module, self._kept = module, dict[str, Tensor]()
        self._hooks = []
        for name, each in module.named_modules():
            if name and (only is None or name in only):
                before = each.register_forward_pre_hook(lambda _, given, to=name: self._keep(to, "input", given))
                after = each.register_forward_hook(lambda _, __, answer, to=name: self._keep(to, "output", answer))
                self._hooks += [before, after]

    def _keep(self, name: str, side: str, value: Any) -> None:
        for index, each in enumerate(value if isinstance(value, (tuple, list)) else (value,)):
            if isinstance(each, Tensor) and each.is_floating_point():
                self._kept[f"{name} {side} {index}"] = each

    def forward(self, *by_place: Any, **by_name: Any) -> tuple[Any, dict[str, Tensor]]:
        self._kept = {}
        answer = self.module(*by_place, **by_name)
        kept, self._kept = self._kept, {}
        return answer, kept

    def without_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()


class _Lowered(TorchModule):
    """A module that is called in another form, forward alone."""

    _form: Callable[..., Any] | None = None

    @abstractmethod
    def _lowered(self, module: nn.Module) -> Callable[..., Any]:
        """What is called in the place of a module."""

    def _around(self) -> AbstractContextManager[Any]:
        return bare(self.given)

    def call(self, feeds: Feeds) -> Array:
        if self._form is None:
            self._form = self._lowered(self.module)
        return self._answered(self._form, feeds)

    def _answered(self, form: Callable[..., Any], feeds: Feeds) -> Array:
        """In the format of x, which autocast leaves where the last step is one in bfloat16."""
        tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in feeds.items()}
        x = tensors.pop("x")
        if self._before:
            self._before.restore()
        with torch.no_grad(), self._around():
            return to_numpy(called(form, self.signature, x, tensors).to(x.dtype))

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        """Of a graph of its own, which has these numbers among its results."""
        seen: Seen = {}
        shown = _Shown(self.module, only)
        form, dtype = self._lowered(shown), to_tensor(np.ascontiguousarray(feeds["x"])).dtype

        def call(*by_place: Any, **by_name: Any) -> Any:
            answer, kept = form(*by_place, **by_name)
            for key, value in kept.items():
                name, side, index = key.rsplit(" ", 2)
                seen[name, side, int(index)] = to_numpy(value.to(dtype))
            return answer

        try:
            return seen, self._answered(call, feeds)
        finally:
            shown.without_hooks()


class _Compiled(_Lowered):
    mode: str | None = None

    def _lowered(self, module: nn.Module) -> Callable[..., Any]:
        compiled: Callable[..., Any] = torch.compile(module, mode=self.mode)
        return compiled

    def _around(self) -> AbstractContextManager[Any]:
        return compiled_for_each_shape()


class _Tuned(_Compiled):
    mode = "max-autotune"


class _Exported(_Lowered):
    """Exported anew for each size."""

    def _lowered(self, module: nn.Module) -> Callable[..., Any]:
        def call(*by_place: Any, **by_name: Any) -> Any:
            return torch.export.export(module, by_place, by_name, strict=False).module()(*by_place, **by_name)

        return call


class _Autocast(_Lowered):
    def _lowered(self, module: nn.Module) -> Callable[..., Any]:
        as_it_is: Callable[..., Any] = module
        return as_it_is

    @contextmanager
    def _around(self) -> Generator[None]:
        with bare(self.given), torch.autocast("cpu", torch.bfloat16):
            yield


_FORMS = {
    "compile": _Compiled,
    "compile-max-autotune": _Tuned,
    "autocast-bf16": _Autocast,
    "export": _Exported,
    "half": TorchModule,
}
"""Word (`encoder_conformance.protocol.variants`) → what it is called as."""


def in_form(module: LiveModule, word: str) -> TorchModule:
    """The module, with the parameters that it has, in the form that is asked for. Raises ExecutionError."""
    assert isinstance(module, TorchModule)
    if FLEX_ATTENTION.called and issubclass(_FORMS[word], _Compiled):
        raise ExecutionError("it calls FlexAttention, whose kernels were not asked: PyTorch's definition of it was")
    made = _FORMS[word](module.given, module.signature, module.way)
    made.seeded, made.formats, made.own_format, made._before = (
        module.seeded, module.formats, module.own_format, module._before,
    )  # fmt: skip
    return made
