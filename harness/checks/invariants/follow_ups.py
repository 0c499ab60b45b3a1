"""Each invariant's other ways to ask a case, and where the answers may not differ (clauses I-1 to I-9).

A variant is a case in its own right. Each of its positions holds what a position of the base holds, or something drawn
anew; where it is the former, and both layers specify an output, the outputs are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance import portable
from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.portable import Floats
from encoder_conformance.reason import Reason
from encoder_conformance.spec.case import Bools, Case
from encoder_conformance.spec.layer import Dropout
from encoder_conformance.spec.masking import Causal
from encoder_conformance.spec.situation import Situation

Indices = npt.NDArray[np.int64]
MORE_PADDING = 6
"""Positions that I-2 adds at the right."""


@dataclass(frozen=True)
class Rearranged(Case):
    """A case whose position (b, s) holds what (`items`[b, s], `positions`[b, s]) of `base` holds, all [B, S]; but where
    it is `anew`, something else."""

    base: Case = field(kw_only=True)
    items: Indices = field(kw_only=True, compare=False)
    positions: Indices = field(kw_only=True, compare=False)
    anew: Bools = field(kw_only=True, compare=False)

    def x(self) -> Floats:
        drawn = self.situation.input
        name = portable.drawn_for("x anew", self.seed)
        other = portable.tensor(name, self.x_shape, drawn.pattern, drawn.exponent)
        return np.where(self.anew[:, :, None], other, self.base.x()[self.items, self.positions])

    def same(self) -> Bools:
        """[B, S], true where the output is the base's at (`items`, `positions`)."""
        return self.specified() & ~self.anew & self.base.specified()[self.items, self.positions]


@dataclass(frozen=True)
class FollowUp:
    """One other way to ask: `says` names it, beside `base`, what the case itself is then called."""

    says: str
    base: str
    case: Rearranged


def base_of(case: Case) -> Case:
    """What variants are compared with: the output of the case itself; of its layer without dropout for I-9."""
    asked = replace(case, situation=_changed(case.situation))
    if case.situation.invariant != "train_without_dropout" or not case.layer.dropout.rates():
        return asked
    none = Dropout.model_validate(dict.fromkeys(Dropout.model_fields, 0.0))
    named = f"{case.layer.layer}-without-dropout"  # another layer: it has to be built
    return replace(asked, layer=case.layer.model_copy(update={"layer": named, "dropout": none}))


def follow_ups(case: Case) -> tuple[FollowUp, ...]:
    """Every other way to ask for the case's invariant."""
    return tuple(_follow_ups(case.situation.invariant or "", base_of(case)))


def _follow_ups(invariant: str, base: Case) -> Iterator[FollowUp]:
    B, S, _ = base.x_shape
    items, positions = np.indices((B, S))
    match invariant:
        case "padding_content":
            yield FollowUp("with other padding", "as drawn", _rearranged(base, items, positions, ~base.valid()))
        case "padding_length":
            longer, further = np.indices((B, S + MORE_PADDING))
            added = further >= S
            here = longer, np.where(added, 0, further), added
            valid = base.valid()[here[0], here[1]] & ~added
            yield FollowUp(f"padded by {MORE_PADDING} more", "as it is", _rearranged(base, *here, valid=valid))
        case "batch_independence":
            for b in range(B):
                yield FollowUp(f"item {b} alone", "in the batch", _rearranged(base, items[b : b + 1], positions[:1]))
            yield FollowUp("the batch reversed", "in order", _rearranged(base, items[::-1], positions))
        case "permutation":
            order = permutation(S, base.seed)
            yield FollowUp("permuted", "in order", _rearranged(base, items, positions[:, order]))
        case "causality":
            for last in (S // 2, S - 2):
                other = _rearranged(base, items, positions, positions > last)
                yield FollowUp(f"with other positions after {last}", "as drawn", other)
        case "layout":
            given = _given(base, layout="sequence_first")
            yield FollowUp("sequence first", "batch first", _rearranged(base, items, positions, given=given))
        case "mask_encoding":
            for said, changes in _encodings(base):
                other = _rearranged(base, items, positions, given=_given(base, **changes))
                yield FollowUp(said, "masks of booleans, true to attend", other)
        case "determinism":
            for said in ("asked again", "asked a third time"):
                yield FollowUp(said, "the first time", _rearranged(base, items, positions))
        case "train_without_dropout":
            yield FollowUp("in mode eval", "in mode train", _rearranged(base, items, positions, mode="eval"))


def permutation(sequence: int, seed: int) -> Indices:
    """The positions in the order of the outputs that are drawn for them (I-4)."""
    return np.argsort(portable.splitmix64(portable.seed(portable.drawn_for("permutation", seed)), sequence))


def _encodings(base: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "masks true to ignore", {"masks": "ignore"}
    yield "masks of integers", {"masks": "integer"}
    yield "masks of 1.0 and 0.0", {"masks": "float"}
    yield "masks to be added", {"masks": "additive"}
    yield "masks of two axes", {"rank": 2}
    if isinstance(base.situation.mask.attention, Causal):
        yield "a causal mask as a flag", {"causal": "flag"}


def _rearranged(
    base: Case,
    items: Indices,
    positions: Indices,
    anew: Bools | None = None,
    valid: Bools | None = None,
    **changes: Any,
) -> Rearranged:
    """`changes` are of the situation. Padding goes where its position goes, unless `valid` says otherwise."""
    B, S = items.shape
    valid = base.valid()[items, positions] if valid is None else valid
    holes = tuple(tuple(int(s) for s in np.flatnonzero(~item)) for item in valid)
    padded = base.situation.mask.padding is not None or not valid.all()
    padding = {"kind": "holes", "positions": holes} if padded else None
    mask = {**base.situation.mask.model_dump(), "padding": padding}
    situation = _changed(base.situation, batch=B, sequence=S, mask=mask, **changes)
    anew = np.zeros((B, S), dtype=np.bool_) if anew is None else anew
    drawn = base.layer, situation, base.seed, base.held
    return Rearranged(*drawn, base=base, items=items, positions=positions, anew=anew)


def _given(base: Case, **changes: Any) -> dict[str, Any]:
    return {**base.situation.given.model_dump(), **changes}


def _changed(situation: Situation, **changes: Any) -> Situation:
    """With its output asked for, and these changes: a situation that the language allows, or an error."""
    plain = {"checks": ("output",), "invariant": None}
    return Situation.model_validate({**situation.model_dump(), **plain, **changes})


def asked_follow_ups(implementation: Implementation, case: Case, dtype: str) -> tuple[FollowUp, ...]:
    """The variants that the implementation takes; what it does not take is not given to it."""
    return tuple(v for v in follow_ups(case) if implementation.opt_out(v.case, dtype, "output") is None)


def opt_out(implementation: Implementation, case: Case, dtype: str) -> Reason | None:
    """Why the case's invariant is not asked, or None if it is: of the case itself, or of every variant of it."""
    said = implementation.opt_out(case, dtype, "invariant") or implementation.opt_out(base_of(case), dtype, "output")
    if said:
        return said
    reasons = [implementation.opt_out(variant.case, dtype, "output") for variant in follow_ups(case)]
    return reasons[0] if all(reasons) else None
