"""Reasons why a deviation changes nothing in a layer, and the layers to ask instead."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import inapplicable
from encoder_conformance.oracle.forms import FAINT
from encoder_conformance.oracle.forms.needs import Inapplicable
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.size import is_large

_BY_DEPTH = list(Inapplicable)
_INSTEAD = 3
"""Layers to ask instead, at most."""


@dataclass(frozen=True)
class NotPlayed:
    """A deviation that changes nothing in the cases asked of some layers, for one reason. `instead`: where it does."""

    deviation: str
    layers: tuple[str, ...]
    reason: Inapplicable
    instead: tuple[str, ...]

    @property
    def sentence(self) -> str:
        layers = ", ".join(self.layers)
        if catalogue()[self.deviation].patch.in_training:
            asked = " conform run" + "".join(f" --case {layer}/dropout" for layer in self.instead)
        else:
            asked = "".join(f" --case '{layer}/*'" for layer in self.instead)
        hint = f" Ask{asked} instead." if self.instead else ""
        return f"{self.deviation} changes nothing in the cases asked of {layers}: {self.reason.value}.{hint}"


def not_played(names: Iterable[str], cases: Sequence[Case], every: Iterable[Case]) -> list[NotPlayed]:
    """The layers of `cases` in which each deviation changes nothing. `every` has others to ask instead."""
    chosen = _by_layer(cases)
    others = _by_layer(case for case in every if not is_large(case.layer) and case.layer.layer not in chosen)
    found = []
    for name in names:
        by_reason: dict[Inapplicable, list[str]] = {}
        for layer, own in chosen.items():
            if reason := why_not(catalogue()[name], own):
                by_reason.setdefault(reason, []).append(layer)
        if by_reason:
            acts = (layer for layer, own in others.items() if why_not(catalogue()[name], own) is None)
            instead = tuple(islice(acts, _INSTEAD))
            found += [NotPlayed(name, tuple(layers), reason, instead) for reason, layers in by_reason.items()]
    return found


def why_not(deviation: Deviation, cases: Sequence[Case]) -> Inapplicable | None:
    """The reason, nearest to applying, why it changes nothing in any of these cases of a layer; None where it does."""
    found = [inapplicable(case, deviation) for case in cases]
    reasons = [reason for reason in found if reason is not None]
    if len(reasons) == len(found):
        return max(reasons, key=_BY_DEPTH.index, default=None)
    if not _is_faint(deviation, cases[0].layer):
        return None
    acts = [case for case, reason in zip(cases, found, strict=True) if reason is None]
    return Inapplicable.SAME_NUMBERS if all(_gives_the_same(case, deviation) for case in acts) else None


def _is_faint(deviation: Deviation, layer: Layer) -> bool:
    """Whether it may say something else and give the same numbers: a score filled with −10000 has a weight of 0 as one
    with −∞ has, and a layer's own epsilon is seldom told from the float32 nearest to it."""
    norm = deviation.patch.layer.norm if deviation.patch.layer else None
    epsilon = norm.epsilon if norm else None
    own = epsilon is not None and np.float32(epsilon) == np.float32(layer.norm.epsilon)
    return bool(own) or any(form in FAINT for form in deviation.patch.steps.values())


def _gives_the_same(case: Case, deviation: Deviation) -> bool:
    right, wrong = simulate(case, []), simulate(case, [deviation])
    return all(np.array_equal(value, wrong[name], equal_nan=True) for name, value in right.items())


def _by_layer(cases: Iterable[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.layer.layer, []).append(case)
    return found
