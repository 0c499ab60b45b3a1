"""What a call computes inside, and how its values are told: by their numbers, and not by names or shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encoder_conformance.blackbox.step_apart import hidden_in
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.spec.axes import Array

_DISTINCT = 4
"""Fewer different numbers tell nothing: a mask, a constant."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of a value in one axis, [N], the smallest first, but for those that hide; and how many there are
    without those and with them."""

    in_order: Array
    sizes: tuple[int, int]

    @classmethod
    def of(cls, value: Array) -> "Numbers":
        wide = value.astype(np.float64).ravel()
        said = np.sort(wide[~hidden_in(wide)])
        return cls(said, (said.size, wide.size))


@dataclass(frozen=True)
class TracedCall:
    """The steps of a call, and the numbers of those values that are of floating-point numbers."""

    steps: Sequence[TracedStep]
    values: Mapping[str, Array]

    @classmethod
    def of(cls, steps: Sequence[TracedStep], numbered: Mapping[str, Array]) -> "TracedCall":
        return cls(steps, {steps[int(number)].value: value for number, value in numbered.items()})

    @cached_property
    def makers(self) -> dict[str, TracedStep]:
        return {step.value: step for step in self.steps}

    @cached_property
    def numbers(self) -> dict[str, Numbers]:
        """Of the values that are told from others by them."""
        return {name: Numbers.of(value) for name, value in self.values.items() if tells(value)}

    @cached_property
    def first(self) -> dict[str, str]:
        """A value → the first that has the very same numbers: what it is a view of, or has in another order."""
        seen = dict[bytes, str]()
        return {name: seen.setdefault(each.in_order.tobytes(), name) for name, each in self.numbers.items()}

    def is_parameter(self, name: str) -> bool:
        return name in self.makers and self.makers[name].given == "parameter"

    def takers(self, name: str) -> list[TracedStep]:
        """The steps that take a value, or what has its numbers."""
        first = self.first.get(name, name)
        return [step for step in self.steps if any(self.first.get(each, each) == first for each in step.takes)]


def tells(value: Array) -> bool:
    """Whether numbers tell a value from others."""
    said = value[~hidden_in(value)]
    return bool(np.isfinite(said).all()) and np.unique(said.ravel()[:4096]).size >= _DISTINCT
