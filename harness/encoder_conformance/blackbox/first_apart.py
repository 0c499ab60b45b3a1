"""The first step of one computation that is none of another's: values are paired by what they are, not by name.

A value is the other's where its numbers, sorted, are: a transposed or reshaped one is the same. A step is right where
any value that is made of it is the other's, for the two may spell the same otherwise.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from encoder_conformance.blackbox.in_its_place import InItsPlace
from encoder_conformance.blackbox.step_apart import hidden_in
from encoder_conformance.blackbox.traced_call import Numbers, TracedCall, tells
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.dtypes import FORMATS, DtypeName

_TIMES = 20.0
"""How many times its own noise a value may be off and be the same: of the noise one narrow run is known."""
_MOST = 0.01
"""Of a value's root of the mean square: what is further off in a narrow format is no noise of it."""
_FAR = 10
"""Steps. A value that is the other's so far behind the last one, in both, says nothing of what it is made of: weights
of attention that are nearly even are alike, whatever they are weights of."""


def _least(held: DtypeName) -> float:
    """Of a value's root of the mean square: the noise that it has at least. A few steps of float32 are one value of
    another spelling; 20 times a few of a format of 16 bits would be as large as a fault."""
    return FORMATS[held].roundoff * (4 if FORMATS[held].roundoff <= FORMATS["float32"].roundoff else 1)


@dataclass(frozen=True)
class FirstApart:
    """The step `made_by` from which on nothing is the other's. `alike`: what it takes → the other's step that makes the
    same; `unknown`: what it takes beside, that the other has nowhere. `computes`: a clause on what it does in
    the other's place; "" where that is not known."""

    made_by: str
    value: str
    alike: Mapping[str, str]
    unknown: Sequence[str]
    computes: str = ""

    def __str__(self) -> str:
        taken = [f"{name!r}, as {other} has it" for name, other in self.alike.items()]
        taken += [f"{name!r}, which is nowhere in it" for name in self.unknown]
        return f"{self.made_by} ({'; '.join(taken)})" if taken else self.made_by

    @property
    def about(self) -> dict[str, object]:
        """Its facts, for a finding."""
        computes = self.computes or None
        return {"made_by": self.made_by, "value": self.value, "alike": self.alike, "computes": computes}

    @property
    def also(self) -> str:
        """What it does, to stand behind a sentence."""
        return f": {self.computes}" if self.computes else ""


def first_apart(
    mine: TracedCall, right: TracedCall, narrow: TracedCall, held: DtypeName = "float32"
) -> FirstApart | None:
    """`right`: the other in float64, `narrow`: in the format that mine is held in. None where every value leads to one
    of the other's."""
    if (lost := _lost(mine, right)) is not None:
        return lost
    limits = _limits(right, narrow, _least(held))
    pairs = dict(paired_values(mine, right, limits))
    others = set(pairs.values())
    fine = _leading_to(
        [one for one, other in pairs.items() if not (_is_lone(one, pairs, mine) and _is_lone(other, others, right))],
        mine,
    )
    makers = right.makers
    apart = [step for step in mine.steps if not step.given and step.value in mine.numbers and step.value not in fine]
    fine |= biased_later(apart, mine, right, limits)
    apart = [step for step in apart if step.value not in fine]
    chosen = next((step for step in apart if any(name in pairs for name in step.takes)), next(iter(apart), None))
    if chosen is None:
        return None
    alike = {name: makers[pairs[name]].made_by for name in chosen.takes if name in pairs}
    unknown = [name for name in chosen.takes if name in mine.numbers and name not in fine]
    said = InItsPlace(mine, right, pairs, limits).said_of(chosen)
    return FirstApart(chosen.made_by, chosen.value, alike, unknown, said)


def biased_later(
    apart: Iterable[TracedStep], mine: TracedCall, right: TracedCall, limits: Mapping[str, float]
) -> set[str]:
    """The values that are one of the other's without its bias, which whoever takes them adds: a fused node does."""
    bare, found = list(_without_bias(right)), set[str]()
    for step in apart:
        own = mine.numbers[step.value]
        beside = [mine.values[name] for taker in mine.takers(step.value) for name in taker.takes if name in mine.values]
        for made, name, numbers in bare:
            is_it = numbers.sizes == own.sizes and rms(own.in_order - numbers.in_order) <= limits[made]
            bias = right.values[name]
            if is_it and any(each.shape == bias.shape and rms(each - bias) <= limits[name] for each in beside):
                found.add(step.value)
    return found


def _without_bias(call: TracedCall) -> Iterator[tuple[str, str, Numbers]]:
    """A value that a vector among the parameters may be added in, that vector, and the numbers without it."""
    vectors = {name: each for name, each in call.values.items() if each.ndim == 1 and call.is_parameter(name)}
    for step in call.steps:
        value = call.values.get(step.value)
        for name in step.takes if value is not None and tells(value) else ():
            if value is not None and name in vectors and value.shape[-1:] == vectors[name].shape:
                yield step.value, name, Numbers.of(value - vectors[name])


def _lost(mine: TracedCall, right: TracedCall) -> FirstApart | None:
    """The step that gives NaN, or a number too large for its format, first of what leads to that in the end, where the
    other ends in numbers."""
    steps = _to_no_number(mine)
    if not steps or _to_no_number(right):
        return None
    value = mine.values[steps[0].value].astype(np.float64)
    what = "NaN" if np.isnan(value).any() else "an infinite number"
    infinite = [name for name in steps[0].takes if np.isinf(mine.values.get(name, np.zeros(1))).any()]
    of = f", of the infinite {', '.join(map(repr, infinite))}" if infinite else ""
    computes = f"it is the first to give {what}, in {int(_is_lost(value).sum())} of {value.size} places{of}"
    return FirstApart(steps[0].made_by, steps[0].value, {}, [], computes)


def _is_lost(value: Array) -> Bools:
    """Which numbers [*shape] are none, or too large. −∞ hides positions in one format, and is −1e9 in another."""
    return np.asarray(np.isnan(value) | np.isposinf(value))


def _to_no_number(call: TracedCall) -> list[TracedStep]:
    """The steps by which what a call ends in is no number: NaN that is put right again, as of a row that is hidden
    whole, is of none."""
    lost = {name for name, value in call.values.items() if _is_lost(value.astype(np.float64)).any()}
    taken = {name for step in call.steps for name in step.takes}
    led, waiting = set[str](), [name for name in lost if name not in taken]
    while waiting:
        name = waiting.pop()
        if name not in led and name in call.makers:
            led.add(name)
            waiting += [each for each in call.makers[name].takes if each in lost]
    return [step for step in call.steps if step.value in led and not step.given]


def paired_values(mine: TracedCall, right: TracedCall, limits: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """A value of mine → the first of the other's whose numbers it has."""
    others: dict[tuple[int, int], list[tuple[str, Array, float]]] = defaultdict(list)
    for name, numbers in right.numbers.items():
        others[numbers.sizes].append((name, numbers.in_order, limits[name]))
    for name, numbers in mine.numbers.items():
        found = (other for other, due, limit in others[numbers.sizes] if rms(numbers.in_order - due) <= limit)
        if (other := next(found, None)) is not None:
            yield name, other


def _limits(right: TracedCall, narrow: TracedCall, least: float) -> dict[str, float]:
    """A value of the other → how far off it may be and be the same, as rms. A narrow call numbers its steps by
    itself: it has none that converts to float64, so what makes them is aligned."""
    wide, own = ([step.made_by for step in call.steps] for call in (right, narrow))
    named = dict[str, str]()
    for one, other, length in SequenceMatcher(None, wide, own, autojunk=False).get_matching_blocks():
        named |= {right.steps[one + at].value: narrow.steps[other + at].value for at in range(length)}
    return {name: _limit(value, narrow.values.get(named.get(name, "")), least) for name, value in right.values.items()}


def _limit(value: Array, narrow: Array | None, least: float) -> float:
    """How far off a value [*shape] may be and be the same; `narrow`: in a narrow format, [*shape]."""
    said = ~hidden_in(value)
    noise, size = 0.0, rms(value[said])
    if narrow is not None and narrow.shape == value.shape:
        both = said & ~hidden_in(narrow)
        with np.errstate(invalid="ignore"):  # infinite in both
            apart = narrow[both] - value[both]
        noise = rms(apart[np.isfinite(apart)])
    return _TIMES * max(noise if noise <= _MOST * size else 0.0, least * size)


def _is_lone(name: str, paired: Container[str], call: TracedCall) -> bool:
    """Whether nothing that is paired is made within `_FAR` steps before a value; not where all begins nearer."""
    makers = call.makers
    seen, level = {name}, [name]
    for _ in range(_FAR):
        taken = {each for value in level for each in makers[value].takes if each in makers}
        level = [each for each in taken - seen if not makers[each].given]
        if any(each in paired for each in level):
            return False
        seen.update(level)
    return bool(level)


def _leading_to(values: Iterable[str], call: TracedCall) -> set[str]:
    """These values, and all that they are made of."""
    makers, found, waiting = call.makers, set[str](), list(values)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += makers[name].takes if name in makers else ()
    return found
