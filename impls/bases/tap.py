"""Taps: functions that are shown every stage of one of our encoders by name."""

from collections.abc import Callable
from typing import TypeVar

from encoder_conformance import shows_inside

T = TypeVar("T")
Tap = Callable[[str, T], T]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""


def untapped(name: str, stage: T) -> T:
    return stage


def pass_on(name: str, stage: T) -> T:
    return stage


def inside(tap: Tap[T], number: int, layers: int) -> Tap[T]:
    """The tap of layer `number` of a stack: its stages are `layer_0.norm1` and so on (T-3)."""
    if tap is untapped:
        return untapped
    if not shows_inside(layers):
        return pass_on
    return lambda name, x: x if name == "output" else tap(f"layer_{number}.{name}", x)
