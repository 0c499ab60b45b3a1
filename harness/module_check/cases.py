"""The cases for one module: its layer in those situations of the core that its masks can be given."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder_conformance.exchange.asking import cases_of, question_of
from encoder_conformance.exchange.tensors import digest_of
from encoder_conformance.module_check.description import Described
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.masking import Causal, Drawn
from encoder_conformance.spec.situation import Check, Level, Situation

OWN = ("no-mask", "padded-item", "causal")
"""The situations in which its own parameters are judged, too."""
_CHECKS: frozenset[Check] = frozenset({"output", "stages", "gradients", "invariant"})
_NO_INVARIANTS = ("layout", "mask_encoding", "train_without_dropout")
"""Of how inputs are given, which a module has one way of; and of training."""


@dataclass(frozen=True)
class Limits:
    """What a module's masks can say."""

    padding: bool
    attention: bool
    by_item: bool
    by_head: bool
    bias: bool
    causal: bool
    """Always: no mask lets it see later positions."""

    @classmethod
    def of(cls, described: Described) -> "Limits":
        by_query = [mask for mask in described.masks if mask.by_query]
        return cls(
            padding=any(mask.by_item for mask in described.masks),
            attention=bool(by_query),
            by_item=any(mask.by_item for mask in by_query),
            by_head=any(mask.by_head for mask in by_query),
            bias=any(mask.by_head and mask.meaning == "additive" for mask in by_query),
            causal=described.always_causal,
        )

    def ask(self, situation: Situation) -> bool:
        """Whether a check asks it. Padding holds what it was drawn as: 2^100 overflows in PyTorch's own LayerNorm."""
        if situation.mode != "eval" or not _CHECKS & {*situation.checks} or situation.invariant in _NO_INVARIANTS:
            return False
        plain = situation.given.layout == "batch_first" and situation.input.padding == "as_drawn"
        return plain and self.allow(situation)

    def allow(self, situation: Situation) -> bool:
        mask = situation.mask
        if mask.padding is not None and not self.padding:
            return False
        if self.causal:
            return isinstance(mask.attention, Causal) and mask.bias is None
        if mask.bias is not None and not self.bias:
            return False
        match mask.attention:
            case None:
                return True
            case Causal():
                return self.attention
            case Drawn(axes=axes):
                return self.attention and (self.by_item or "B" not in axes) and (self.by_head or "H" not in axes)
        return self.by_item


def cases_for(described: Described, layer: Layer, level: Level = "core") -> list[Case]:
    """With portable parameters. Each set of tensors once, however a situation would have them given."""
    limits, seen, found = Limits.of(described), set[bytes](), list[Case]()
    for case in sorted(pool(layer, [limits], level, described.dtypes), key=lambda case: -len(case.situation.checks)):
        format = case.situation.dtypes[-1]
        content = digest_of(question_of(case, format), f"{case.situation.parameter_exponents} {format}")
        if case.situation.invariant is None and content in seen:
            continue
        if case.situation.invariant is None:
            seen.add(content)
        found.append(_as_held(_in_formats(case, described), described))
    return found


def pool(
    layer: Layer, limits: Sequence[Limits], level: Level, dtypes: Collection[str] = ("float32",)
) -> Iterator[Case]:
    """Cases of the level in any of these formats that all of these limits allow. The core of a stack, and of a layer
    that is always causal, is all required ones."""
    whole = layer.is_stack or any(each.causal for each in limits)
    for case in cases_of(layer, "required" if level == "core" else level, 0):
        asked = level != "core" or case.in_core or whole
        if (
            asked
            and not set(dtypes).isdisjoint(case.situation.dtypes)
            and all(each.ask(case.situation) for each in limits)
        ):
            yield case


def _in_formats(case: Case, described: Described) -> Case:
    situation = case.situation
    dtypes = tuple(dtype for dtype in situation.dtypes if dtype in described.dtypes)
    checks = tuple(check for check in situation.checks if check in _CHECKS)
    mask = case.mask()
    if described.padded_item_is_nan and mask is not None and not mask.any(-1).all():
        checks = tuple(check for check in checks if check != "gradients")
    return replace(case, situation=situation.model_copy(update={"dtypes": dtypes, "checks": checks}))


def own_cases(
    described: Described, layer: Layer, own: Mapping[str, np.ndarray[Any, Any]], level: Level = "core"
) -> Iterator[Case]:
    """With the module's own parameters; none if it lacks some that the layer has no way to do without."""
    limits = Limits.of(described)
    renamed = layer.model_copy(update={"layer": f"{layer.layer}-own"})
    held = CaseParameters.of({**neutral(layer_parameters(layer, {}), described.absent), **own})
    for case in pool(renamed, [limits], level, described.dtypes):
        if case.situation.situation in OWN:
            yield replace(_in_formats(case, described), held=held)


def _as_held(case: Case, described: Described) -> Case:
    """With what the module lacks set to what does nothing, and what is one tensor made equal."""
    if not described.absent and not described.tied:
        return case
    parameters = neutral(case.parameters(), described.absent)
    for first, second in described.tied:
        parameters[second] = parameters[first]
    return replace(case, held=CaseParameters.of(parameters))


def neutral(parameters: Mapping[str, Any], absent: Sequence[str]) -> dict[str, Any]:
    """A gain of 1, a bias or shift of 0."""
    without = {name: np.full_like(parameters[name], name.endswith("gain")) for name in absent}
    return {**parameters, **without}
