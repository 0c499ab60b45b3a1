"""A form: what a kind of step computes, rightly and wrongly, and what follows from that."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal

from encoder_conformance.oracle.forms.needs import Need
from encoder_conformance.spec.plan import Step

Keeps = Literal["nothing", "what it reads", "what it makes"]


@dataclass(frozen=True)
class Form:
    """What a kind of step computes. A layer's plan says which variant is the right one.

    `variants`: name → (arithmetic, *operands, **choices) → the value and its pullback. Deviations name the wrong ones.
    """

    variants: Mapping[str, Any]
    equation: Mapping[str, str]
    """Right variant → its equation: {0} and {1} are what the step reads, other names are its parameters and what it
    takes beside, and its choices. What stands in brackets is left out where a step has not that parameter or choice."""
    roles: tuple[str, ...] = ()
    """The parameters, in the order of operands; one that a layer does not have is 0."""
    keeps: Keeps | Mapping[str, Keeps] = "nothing"
    """What the way back needs of it, or right variant → that."""
    makes_no_tensor: bool = False
    """Whether its result is a view of what it reads, or that itself."""
    needs: Mapping[str, tuple[Need, ...]] = field(default_factory=dict)
    """Wrong variant → what a case needs for it to change anything."""
    is_choice: Mapping[str, str] = field(default_factory=dict)
    """Wrong variant → the right one that it is, where a layer chooses that."""

    def reads(self, step: Step) -> tuple[str, ...]:
        """The stages and inputs that the step's equation names."""
        fields = [name for _, name, _, _ in Formatter().parse(self.equation[step.right]) if name]
        named = [step.reads[int(name)] if name.isdigit() else step.beside.get(name) for name in fields]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def kept(self, right: str, reads: tuple[str, ...], makes: str) -> tuple[str, ...]:
        """The tensors that the way back needs of an operation."""
        keeps = self.keeps if isinstance(self.keeps, str) else self.keeps[right]
        return {"nothing": (), "what it reads": reads, "what it makes": (makes,)}[keeps]

    def equation_of(self, step: Step, reads: Mapping[str, str]) -> str:
        """The equation of one step. `reads`: what it reads that is no stage → the equation of that."""
        names = {role: f"{step.owner}.{role}" for role in self.roles}
        has = {*step.parameters, *step.choices}
        template = re.sub(r"\[(.*?{(\w+)}.*?)\]", lambda part: part[1] if part[2] in has else "",
                          self.equation[step.right])  # fmt: skip
        named = {**step.choices, **names, **step.beside}
        return template.format(*(reads.get(name, name) for name in step.reads), **named)
