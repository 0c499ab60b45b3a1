"""Taps: functions that are shown every stage of an encoder by name."""

from collections.abc import Callable

from torch import Tensor

from encoder_conformance import shows_inside

Tap = Callable[[str, Tensor], Tensor]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""


def untapped(name: str, stage: Tensor) -> Tensor:
    return stage


def pass_on(name: str, stage: Tensor) -> Tensor:
    return stage


def inside(tap: Tap, number: int, layers: int) -> Tap:
    """The tap of layer `number` of a stack: its stages are `layer_0.norm1` and so on (T-3)."""
    if tap is untapped:
        return untapped
    if not shows_inside(layers):
        return pass_on
    return lambda name, x: x if name == "output" else tap(f"layer_{number}.{name}", x)
