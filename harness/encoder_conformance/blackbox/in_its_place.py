"""What another computation has in the place of a step, where the values of both inside are known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encoder_conformance.blackbox.lone_step import LoneStep, activations_of
from encoder_conformance.blackbox.step_apart import SAME, WHOLE, Test, by_a_number, partly, what_it_computes
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.spec.axes import Array

_FURTHER = 6
"""Steps after what both have in which a step of the same operation is looked for."""
_OPERATIONS = (
    {"matmul", "gemm", "bmm", "mm", "addmm", "linear", "baddbmm", "dotgeneral"}, {"reducemean", "mean"},
    {"reducesum", "sum"}, {"concat", "cat", "concatenate"}, {"where", "maskedfill", "selectn"}, {"sub", "rsub"},
    {"gather", "select", "index", "embedding"}, {"sigmoid", "logistic"}, {"softmax", "safesoftmax"},
    {"layernormalization", "nativelayernorm"}, {"rmsnormalization", "fusedrmsnorm"}, {"pow", "square", "integerpow"},
)  # fmt: skip
"""Names of one operation, in the runtimes and frameworks: without `_`, in small letters."""


@dataclass(frozen=True)
class InItsPlace:
    """Two calls, what is paired of their values, mine → the other's, and how far off one of the other's may be."""

    mine: TracedCall
    right: TracedCall
    pairs: Mapping[str, str]
    limits: Mapping[str, float]

    def said_of(self, step: TracedStep) -> str:
        """What the step does in the other's place, as a clause; "" where nothing of this is known to be so."""
        others = self._in_place_of(step)
        tests = (
            self._otherwise, self._computes, self._identified, self._takes, self._partly, self._activates,
            self._of_what_it_takes,
        )  # fmt: skip
        said = next((said for test in tests if (said := test(step, others))), "")
        names = list(dict.fromkeys(other.made_by for other in others))
        instead = f"in its place there is {' and '.join(names[:2])}" if names else ""
        return said or instead

    def _in_place_of(self, step: TracedStep) -> list[TracedStep]:
        """The other's steps that take what the step takes, and whose values are nowhere in mine; parameters count where
        nothing else tells one."""
        both = [name for name in step.takes if name in self.pairs]
        return self._unseen_takers(self._given(step)) or self._unseen_takers(both)

    def _unseen_takers(self, names: Sequence[str]) -> list[TracedStep]:
        takers = {taker.value: taker for name in names for taker in self.right.takers(self.pairs[name])}
        return [taker for taker in takers.values() if self._is_unseen(taker.value)]

    def _given(self, step: TracedStep) -> list[str]:
        """What it takes that both have, and is no parameter."""
        return [name for name in step.takes if name in self.pairs and not self.mine.is_parameter(name)]

    def _is_unseen(self, name: str) -> bool:
        first = self.right.first.get(name)
        return first is not None and first not in self._seen

    @cached_property
    def _seen(self) -> set[str]:
        return {self.right.first[name] for name in self.pairs.values()}

    def _otherwise(self, step: TracedStep, others: list[TracedStep]) -> str:
        """By a number that the other has too, and another."""
        for name in self._given(step):
            given, limit = self.right.values[self.pairs[name]], self.limits[self.pairs[name]]
            mine = by_a_number(self.mine.values[step.value], given, limit)
            for other in others if mine else ():
                if theirs := by_a_number(self.right.values[other.value], given, 0.0):
                    taken = self._named(self.pairs[name])
                    return f"it gives {mine.format(taken)}, and {other.made_by} {theirs.format('that')}"
        return ""

    def _computes(self, step: TracedStep, others: list[TracedStep]) -> str:
        return self._of_others(step, others, WHOLE)

    def _partly(self, step: TracedStep, others: list[TracedStep]) -> str:
        return self._of_others(step, others, (partly,))

    def _of_others(self, step: TracedStep, others: list[TracedStep], tests: Sequence[Test]) -> str:
        found = (self._of_value(self.mine.values[step.value], other.value, tests) for other in others)
        return next((f"it gives {said}" for said in found if said), "")

    def _of_value(self, value: Array, other: str, tests: Sequence[Test] = WHOLE) -> str:
        """What a value [*shape] is of the other's."""
        due = self.right.values[other]
        if value.size == due.size and value.shape[-1:] == due.shape[-1:]:
            value = value.reshape(due.shape)
        said = what_it_computes(value, due, self.limits[other], tests)
        return said.format(self._named(other))

    def _identified(self, step: TracedStep, others: list[TracedStep]) -> str:
        """By the identifier, of a step that takes one value alone beside parameters."""
        for other in others:
            lone, found = self._lone(other), self._alone(step)
            if lone is not None and found.size == lone.due.size:
                answer = lone.answer(found.reshape(lone.due.shape), self.limits[other.value])
                if answer is not None:
                    return f"it computes {answer}"
        return ""

    def _lone(self, other: TracedStep) -> LoneStep | None:
        values = self.right.values
        read = [name for name in other.takes if name in values and not self.right.is_parameter(name)]
        if len(read) != 1 or values[read[0]].shape != values[other.value].shape:
            return None
        beside = tuple(values[name] for name in other.takes if name in values and name != read[0])
        return LoneStep(values[read[0]], values[other.value], beside)

    def _alone(self, step: TracedStep) -> Array:
        """The last value of the step's size that is made of it alone, element by element and row by row."""
        mine, made = self.mine, {step.value, *step.takes}
        last = mine.values[step.value]
        start = {name for name in step.takes if name in mine.values}
        for other in self.mine.steps[self.mine.steps.index(step) + 1 :]:
            takes = [name for name in other.takes if name in mine.values]
            is_ours = any(name in made - start for name in takes)
            if is_ours and all(name in made or mine.is_parameter(name) for name in takes):
                if _operation(other) in _OPERATIONS[0] or other.value not in mine.values:
                    continue
                made.add(other.value)
                if mine.values[other.value].size == last.size:
                    last = mine.values[other.value]
        return last

    def _takes(self, step: TracedStep, others: list[TracedStep]) -> str:
        """The operand that is another than that of the next step of the same operation."""
        for other in self._next(others):
            if _operation(other) == _operation(step) != "":
                return self._operands_apart(step, other)
        return ""

    def _next(self, others: list[TracedStep]) -> Iterator[TracedStep]:
        seen, level = set[str](), others
        for _ in range(_FURTHER):
            yield from level
            seen |= {other.value for other in level}
            takers = {taker.value: taker for other in level for taker in self.right.takers(other.value)}
            level = [each for name, each in takers.items() if name not in seen and self._is_unseen(name)]

    def _operands_apart(self, step: TracedStep, other: TracedStep) -> str:
        first = self.right.first
        theirs = {first[name]: name for name in other.takes if name in first}
        mine = {name: first.get(self.pairs.get(name, "")) for name in step.takes if name in self.mine.numbers}
        for name, same in mine.items():
            is_turned = step.operator == "Gemm"  # which may take a matrix as it is or transposed
            if same in theirs and (said := self._otherwise_arranged(self.mine.values[name], theirs[same], is_turned)):
                return f"{name!r} is {said}"
        left = _one_of(self.mine, [name for name, same in mine.items() if same not in theirs])
        due = _one_of(self.right, [name for name in theirs if name not in mine.values()])
        if not left or len(left) != len(due):
            return ""
        for name, another in zip(left, due, strict=True):
            if said := self._of_value(self.mine.values[name], theirs[another]):
                return f"{name!r} is {said}"
        named = self._named(due[0])
        return f"it takes {left[0]!r} where {other.made_by} takes {named}" if len(left) == 1 else ""

    def _named(self, name: str) -> str:
        """A value of the other, by what makes it."""
        maker = self.right.makers[self.right.first.get(name, name)]
        return maker.made_by if maker.given else f"what {maker.made_by} makes"

    def _otherwise_arranged(self, value: Array, other: str, either_way: bool) -> str:
        """What a value [*shape] is of one that has the same numbers, where it has them in other places. `either_way`:
        its last two axes may be exchanged."""
        due, limit = self.right.values[other], self.limits[other]
        turned = np.swapaxes(value, -1, -2) if value.ndim > 1 else value
        ways = (value, turned) if either_way or value.shape[-2:] != due.shape[-2:] else (value,)
        alike = [each.reshape(due.shape) for each in ways if each.shape[-1:] == due.shape[-1:]]
        if any(what_it_computes(each, due, limit) == SAME for each in alike):
            return ""
        said = next((said for each in alike if (said := what_it_computes(each, due, limit))), "")
        if turned.shape == due.shape and what_it_computes(turned, due, limit) == SAME:
            said = "{} transposed"
        if not said and any(each.shape[-2:] == due.shape[-2:] for each in ways):
            said = "{} in another order"
        return said.format(self._named(other))

    def _of_what_it_takes(self, step: TracedStep, others: list[TracedStep]) -> str:
        """Of a step that the other has not."""
        found = (self._of_value(self.mine.values[step.value], self.pairs[name]) for name in self._given(step))
        return next((f"it gives {said}" for said in found if said), "")

    def _activates(self, step: TracedStep, others: list[TracedStep]) -> str:
        """Of a step that is the activation of what the other does not activate."""
        for name in self._given(step):
            read, found, limit = self.right.values[self.pairs[name]], self._alone(step), self.limits[self.pairs[name]]
            if read.size != found.size or rms(found.ravel() - read.ravel()) <= limit:
                continue
            if named := activations_of(read, found.reshape(read.shape), limit):
                instead = f", and in its place there is {others[0].made_by}" if others else ""
                return f"it computes {named[0]} of {name!r}{instead}"
        return ""


def _one_of(call: TracedCall, names: list[str]) -> list[str]:
    """Of several operands those that are no parameters."""
    return names if len(names) == 1 else [name for name in names if not call.is_parameter(name)]


def _operation(step: TracedStep) -> str:
    """What it does, in one word for all frameworks."""
    plain = step.operator.replace("_", "").lower()
    return next((min(group) for group in _OPERATIONS if plain in group), plain)
