"""The follow-up cases of each invariant, and where their outputs must agree with the base's (clauses I-1 to I-10).

A follow-up is a case in its own right. Each of its positions holds the input of some position of the base case, or a
newly drawn input. Where it holds the base's input and both cases specify an output, the outputs must be equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec import portable
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Dropout
from encoder_conformance.spec.masking import Causal
from encoder_conformance.spec.portable import Floats
from encoder_conformance.spec.situation import Situation

Indices = npt.NDArray[np.int64]
MORE_PADDING = 6
"""Positions that I-2 adds at the right."""


@dataclass(frozen=True)
class Rearranged(Case):
    """A case whose position (b, s) holds the input at (`items`[b, s], `positions`[b, s]) of `base`.

    Where `redrawn` is true it holds a newly drawn input instead. All three arrays are [B, S].
    """

    base: Case = field(kw_only=True)
    items: Indices = field(kw_only=True, compare=False)
    positions: Indices = field(kw_only=True, compare=False)
    redrawn: Bools = field(kw_only=True, compare=False)

    def x(self) -> Floats:
        drawn = self.situation.input
        name = portable.drawn_for("x anew", self.seed)
        other = portable.tensor(name, self.x_shape, drawn.pattern, drawn.exponent)
        return np.where(self.redrawn[:, :, None], other, self.base.x()[self.items, self.positions])

    def token_types(self) -> npt.NDArray[np.int64] | None:
        types = self.base.token_types()
        return None if types is None else types[self.items, self.positions]

    def comparable(self) -> Bools:
        """[B, S], true where the output must equal the base's output at (`items`, `positions`)."""
        return self.specified() & ~self.redrawn & self.base.specified()[self.items, self.positions]


@dataclass(frozen=True)
class FollowUp:
    """One follow-up case, with a short `description` for messages, and one of the base case beside it."""

    description: str
    base_description: str
    case: Rearranged


def base_of(case: Case) -> Case:
    """The case that the follow-ups are compared with: the case itself; for I-9, with its layer's dropout removed; for
    I-10, of a layer of another name, which has to be built."""
    base = replace(case, situation=_change_situation(case.situation))
    if case.situation.invariant == "history":
        return _renamed(base, "built-anew")
    if case.situation.invariant != "train_without_dropout" or not case.layer.dropout.rates():
        return base
    no_dropout = Dropout.model_validate(dict.fromkeys(Dropout.model_fields, 0.0))
    name = f"{case.layer.layer}-without-dropout"  # another layer: it has to be built
    return replace(base, layer=case.layer.model_copy(update={"layer": name, "dropout": no_dropout}))


def _renamed(base: Case, suffix: str) -> Case:
    layer = base.layer.model_copy(update={"layer": f"{base.layer.layer}-{suffix}"})
    return replace(base, layer=layer)


def follow_ups(case: Case) -> tuple[FollowUp, ...]:
    """Every follow-up case of the case's invariant."""
    return tuple(each_follow_up(case))


def each_follow_up(case: Case) -> Iterator[FollowUp]:
    """The follow-up cases of the case's invariant one by one, for a caller that may need the first alone."""
    return _generate_follow_ups(case.situation.invariant or "", base_of(case))


def _generate_follow_ups(invariant: str, base: Case) -> Iterator[FollowUp]:
    B, S, _ = base.x_shape
    items, positions = np.indices((B, S))
    match invariant:
        case "padding_content":
            yield FollowUp("with other padding", "as drawn", _rearranged(base, items, positions, ~base.valid()))
        case "padding_length":
            yield FollowUp(f"padded by {MORE_PADDING} more", "as it is", _padded_more(base))
        case "batch_independence":
            for b in np.flatnonzero(base.valid().any(axis=1)):  # of padding alone there is nothing to compare
                yield FollowUp(f"item {b} alone", "in the batch", _rearranged(base, items[b : b + 1], positions[:1]))
            yield FollowUp("the batch reversed", "in order", _rearranged(base, items[::-1], positions))
        case "permutation":
            order = permutation(S, base.seed)
            yield FollowUp("permuted", "in order", _rearranged(base, items, positions[:, order]))
        case "causality":
            for last in (S // 2, S - 2):
                follow_up = _rearranged(base, items, positions, positions > last)
                yield FollowUp(f"with other positions after {last}", "as drawn", follow_up)
        case "layout":
            sequence_first = _change_input_format(base, layout="sequence_first")
            yield FollowUp("sequence first", "batch first", _rearranged(base, items, positions, given=sequence_first))
        case "mask_encoding":
            for description, changes in _mask_encodings(base):
                follow_up = _rearranged(base, items, positions, given=_change_input_format(base, **changes))
                yield FollowUp(description, "masks of booleans, true to attend", follow_up)
        case "determinism":
            for description in ("asked again", "asked a third time"):
                yield FollowUp(description, "the first time", _rearranged(base, items, positions))
        case "history":
            again = _renamed(base, "again")
            for asked, when in ((base, "after"), (again, "of another layer that is built anew, after")):
                one = _rearranged(asked, items[:1, :1], positions[:1, :1], np.ones((1, 1), dtype=np.bool_))
                yield FollowUp("one position", "as the first", one)
                yield FollowUp(f"{when} one position", "as the first", _rearranged(asked, items, positions))
        case "train_without_dropout":
            yield FollowUp("in mode eval", "in mode train", _rearranged(base, items, positions, mode="eval"))


def _padded_more(base: Case) -> Rearranged:
    B, S, _ = base.x_shape
    items, positions = np.indices((B, S + MORE_PADDING))
    added = positions >= S
    positions = np.where(added, 0, positions)
    return _rearranged(base, items, positions, added, base.valid()[items, positions] & ~added)


def with_x_anew(case: Case) -> FollowUp:
    """The base case with all of x anew: an answer that depends on x is another one (rule J-8)."""
    base = base_of(case)
    B, S, _ = base.x_shape
    items, positions = np.indices((B, S))
    everywhere = np.ones((B, S), dtype=np.bool_)
    return FollowUp("with x anew", "as drawn", _rearranged(base, items, positions, everywhere))


def permutation(sequence: int, seed: int) -> Indices:
    """[S], the positions in the order of the random numbers that are drawn for them (I-4)."""
    return np.argsort(portable.splitmix64(portable.seed(portable.drawn_for("permutation", seed)), sequence))


def _mask_encodings(base: Case) -> Iterator[tuple[str, dict[str, Any]]]:
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
    redrawn: Bools | None = None,
    valid: Bools | None = None,
    **changes: Any,
) -> Rearranged:
    """The follow-up case with these `changes` of the situation.

    Padding moves with its position, unless `valid` [B, S] is given.
    """
    B, S = items.shape
    valid = base.valid()[items, positions] if valid is None else valid
    padded_positions = tuple(tuple(int(s) for s in np.flatnonzero(~item)) for item in valid)
    padded = base.situation.mask.padding is not None or not valid.all()
    padding = {"kind": "holes", "positions": padded_positions} if padded else None
    mask = {**base.situation.mask.model_dump(), "padding": padding}
    situation = _change_situation(base.situation, batch=B, sequence=S, mask=mask, **changes)
    redrawn = np.zeros((B, S), dtype=np.bool_) if redrawn is None else redrawn
    drawn = base.layer, situation, base.seed, base.held
    return Rearranged(*drawn, base=base, items=items, positions=positions, redrawn=redrawn)


def _change_input_format(base: Case, **changes: Any) -> dict[str, Any]:
    return {**base.situation.given.model_dump(), **changes}


def _change_situation(situation: Situation, **changes: Any) -> Situation:
    """The situation with the check `output` alone and these changes, validated."""
    output_only = {"checks": ("output",), "invariant": None}
    return Situation.model_validate({**situation.model_dump(), **output_only, **changes})
