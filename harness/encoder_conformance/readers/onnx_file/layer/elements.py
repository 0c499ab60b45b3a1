"""The numbers of a parameter's elements among those of all initializers, kept in little memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class EvenSteps:
    """A block of an initializer, transposed or not: the first number, and the step and size of each axis."""

    first: int
    steps: tuple[int, ...]
    shape: tuple[int, ...]

    def numbers(self, dtype: np.dtype[Any]) -> Array:
        found = np.asarray(self.first, dtype)
        for step, size in zip(self.steps, self.shape, strict=True):
            found = found[..., None] + np.arange(size, dtype=dtype) * np.asarray(step, dtype)
        return found


@dataclass(frozen=True)
class Elements:
    """The numbers of a parameter's elements. All together are as large as the weights; most are a block."""

    kept: EvenSteps | Array
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, numbers: Array) -> "Elements":
        if not numbers.size:
            return cls(numbers, numbers.dtype)
        corner = (0,) * numbers.ndim
        steps = tuple(
            int(numbers[(*corner[:axis], 1, *corner[axis + 1 :])]) - int(numbers[corner]) if size > 1 else 0
            for axis, size in enumerate(numbers.shape)
        )
        block = EvenSteps(int(numbers[corner]), steps, numbers.shape)
        even = np.array_equal(block.numbers(numbers.dtype), numbers)
        return cls(block if even else np.ascontiguousarray(numbers), numbers.dtype)

    def numbers(self) -> Array:
        """The numbers, in the shape of the parameter."""
        return self.kept.numbers(self.dtype) if isinstance(self.kept, EvenSteps) else self.kept
