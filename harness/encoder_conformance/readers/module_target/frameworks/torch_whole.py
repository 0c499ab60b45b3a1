"""A whole module of PyTorch: called with arguments by name; all tensors that it returns are its outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import (
    as_given,
    copy_of,
    forward_of,
    inside,
    is_compiled,
)
from encoder_conformance.readers.module_target.frameworks.torch_formats import in_format
from encoder_conformance.readers.module_target.frameworks.torch_trace import traced
from encoder_conformance.readers.module_target.given_as import arguments_of, converted, tensors_in
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.spec.axes import Array

_FORMATS = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_BLOCK = 1 << 20
"""Elements of a parameter that are disturbed at a time."""


class WholeTorch(WholeModule):
    """The module that was given, compiled code and wrappers included."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.taken, self.free = arguments_of(forward_of(inside(module)))

    def _disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeTorch":
        """A copy, in evaluation mode."""
        copied = copy_of(self._module).to("cpu").eval()
        if precision != "own":
            copied = in_format(copied, _FORMATS[precision])
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for value in filter(torch.is_floating_point, copied.parameters()):  # integers are not rounded
                    for block in _blocks(value):
                        block.copy_(_disturbed(block, generator, roundoff))
        return WholeTorch(copied)

    def outputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Raises RuntimeError, with the last frames of the module's own traceback."""
        tensors = self._tensors(given)
        try:
            with torch.no_grad(), as_given(self._module):
                answer = self._module(**tensors)
        except Exception as error:
            raise RuntimeError(last_frames(error)) from None
        tensors = dict(tensors_in(answer, lambda value: isinstance(value, Tensor)))
        if strange := next((name for name, each in tensors.items() if each.is_complex()), None):
            raise RuntimeError(f"{strange!r} is of complex numbers, which no output of a file is compared with")
        return {name: to_numpy(each) for name, each in tensors.items()}

    def _tensors(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """In the format of the parameters, what is of floating-point numbers."""
        held = next((each.dtype for each in self._module.parameters() if each.is_floating_point()), torch.float32)

        def tensor(value: Array) -> Tensor:
            made = to_tensor(value)
            return made.to(held) if made.is_floating_point() else made

        return converted(given, tensor)

    def steps(self, given: Mapping[str, Any]) -> tuple[list[TracedStep], dict[str, Array]]:
        """Of eager code alone: what is compiled would not be compiled again after a look inside."""
        if is_compiled(self._module):
            raise RuntimeError("it is compiled: what it computes inside cannot be seen")
        try:
            return traced(inside(self._module), self._tensors(given))
        except Exception as error:
            raise RuntimeError(last_frames(error)) from None


def _blocks(value: Tensor) -> Sequence[Tensor]:
    """Of the rows of a parameter: what is drawn for a table of words is as large as several layers."""
    if not value.ndim or not value.numel():
        return (value,)
    rows = max(1, _BLOCK * value.shape[0] // value.numel())
    return [value[at : at + rows] for at in range(0, len(value), rows)]


def _disturbed(value: Tensor, generator: torch.Generator, roundoff: float) -> Tensor:
    """In place, of which no intermediate is as large."""
    drawn = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    return drawn.mul_(2).sub_(1).mul_(roundoff).add_(1).mul_(value)
