"""One line of the checklist, and what becomes of it."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "not declared", "not tried"]
Blame = Literal["blank", "adapter", "architecture", "implementation"]
"""Whose fault a failed step is: something that is not written yet, the program that drives, a layer that is asked of
what is made for another, or what the program drives."""

NAMES = (
    "manifest", "start", "build", "parameters", "output", "numbers",
    "stages", "weights", "gradients", "refusal", "forms",
)  # fmt: skip
"""Every step, in order."""


@dataclass(frozen=True)
class Step:
    """`said` is what was found, `do` what to do about it, a line each."""

    name: str
    state: State
    said: str
    do: tuple[str, ...] = ()
    blame: Blame | None = None


def verdict(steps: list[Step]) -> Blame | Literal["ok"]:
    """What is to be mended first: the first step that failed says it."""
    return next((step.blame for step in steps if step.blame), "ok")
