"""Reverse accumulation over named steps: each step brings its own hand-written pullback, the tape only orders them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.recall import Recall
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case_parameters import Converted
from encoder_conformance.spec.plan import Step as PlannedStep

Found = TypeVar("Found")

ByOperands = tuple[Array, ...]
"""The gradients by a step's operands, each in the shape of its operand."""
Pullback = Callable[[Array], ByOperands]
"""The gradient by a step's result → those by its operands."""


@dataclass(eq=False)
class Node:
    """A value, and how a gradient by it becomes gradients by what it was computed from."""

    value: Array
    operands: tuple["Node", ...] = ()
    pullback: Pullback | None = None


Onward = Callable[[str, Node], Node]
"""(a stage's name, the stage as it was computed) → its replacement for the steps after it."""


def as_computed(name: str, stage: Node) -> Node:
    return stage


Step = Callable[..., tuple[Array, Pullback]]
"""step(arithmetic, *operand values, **choices) → its result and its pullback."""


class Steps(Protocol):
    """A play, as a tape sees it."""

    def take(self, step: PlannedStep) -> None: ...
    def alike(self, earlier: Any, steps: Sequence[PlannedStep]) -> int: ...
    def go_on_from(self, earlier: Any, steps: Sequence[PlannedStep]) -> None: ...


@dataclass
class Tape:
    arithmetic: Arithmetic
    nodes: list[Node] = field(default_factory=list)

    def leaf(self, value: Array) -> Node:
        return Node(self.arithmetic.exact(value))

    def apply(self, step: Step, *operands: Node, **choices: object) -> Node:
        value, pullback = step(self.arithmetic, *(operand.value for operand in operands), **choices)
        node = Node(value, operands, pullback)
        self.nodes.append(node)
        return node

    def call(self, form: Callable[..., Found], *operands: Any, **choices: object) -> Found:
        """The result of a form that is no step by itself."""
        return form(self.arithmetic, *operands, **choices)

    def run(self, play: "Steps", steps: Sequence[PlannedStep]) -> None:
        for step in steps:
            play.take(step)

    def parameters(self, values: Mapping[str, Array]) -> Mapping[str, Node]:
        return {name: self.leaf(value) for name, value in values.items()}

    def gradients(self, result: Node, cotangent: Array, wanted: dict[str, Node]) -> dict[str, Array]:
        """The gradients of sum(result * cotangent) by the wanted leaves, in their shapes."""
        by: dict[Node, Array] = {result: self.arithmetic.exact(cotangent)}
        for node in reversed(self.nodes):
            if node in by and node.pullback:
                for operand, gradient in zip(node.operands, node.pullback(by.pop(node)), strict=True):
                    by[operand] = self.arithmetic.add(by[operand], gradient) if operand in by else gradient
        return {name: by[leaf] for name, leaf in wanted.items()}


class ForwardTape(Tape):
    """A tape without gradients, which keeps no nodes: one layer's parameters of a large stack at a time."""

    def apply(self, step: Step, *operands: Node, **choices: object) -> Node:
        return Node(step(self.arithmetic, *(operand.value for operand in operands), **choices)[0])

    def parameters(self, values: Mapping[str, Array]) -> Mapping[str, Node]:
        return Converted(values, self.leaf)


@dataclass
class RecallingTape(ForwardTape):
    """A tape that takes the result of a step from an earlier play, where the operands are the very same arrays.

    `keeps`: the results of this play are kept for later ones. It must draw nothing at random. `earlier`: plays that
    it may go on from; `played`: what it has played.
    """

    recall: Recall = field(kw_only=True)
    keeps: bool = field(kw_only=True)
    earlier: Sequence[Steps] = ()
    played: Steps | None = None

    def run(self, play: Steps, steps: Sequence[PlannedStep]) -> None:
        done = {play.alike(each, steps): each for each in self.earlier}
        if most := max(done, default=0):
            play.go_on_from(done[most], steps[:most])
        super().run(play, steps[most:])
        self.played = play

    def apply(self, step: Step, *operands: Node, **choices: object) -> Node:
        return Node(self.call(step, *(operand.value for operand in operands), **choices)[0])

    def call(self, form: Callable[..., Found], *operands: Any, **choices: object) -> Found:
        return self.recall.get(
            form, operands, choices, lambda: form(self.arithmetic, *operands, **choices), keep=self.keeps
        )
