"""A step of the checklist, and the verdict of all steps."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "not declared", "not tried"]
Blame = Literal["blank", "adapter", "architecture", "implementation"]
"""The cause of a failed step: a blank that is left, the adapter, a layer that the implementation's fixed architecture
does not support, or the implementation."""

NAMES = (
    "manifest", "start", "build", "parameters", "output", "numbers",
    "stages", "weights", "gradients", "refusal", "forms",
)  # fmt: skip
"""Every step, in order."""


@dataclass(frozen=True)
class SmokeStep:
    """One step. `said` is the result, `do` the advice, one line each."""

    name: str
    state: State
    said: str
    do: tuple[str, ...] = ()
    blame: Blame | None = None


def verdict(steps: list[SmokeStep]) -> Blame | Literal["ok"]:
    """The fault to fix first, by the first failed step; "ok" if none failed."""
    return next((step.blame for step in steps if step.blame), "ok")
