"""The masks of a situation: padding, attention mask and bias (clauses M-1 to M-7)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from encoder_conformance.spec.strict import Strict


class EndPadding(Strict):
    kind: Literal["right", "left"] = Field(description="the end of the sequence that is padded")
    lengths: tuple[NonNegativeInt, ...] = Field(description="the number of valid positions of each item")


class Holes(Strict):
    kind: Literal["holes"]
    positions: tuple[tuple[NonNegativeInt, ...], ...] = Field(description="the positions of each item that are padding")


class Causal(Strict):
    kind: Literal["causal"] = Field(description="a query attends to its own and all earlier positions")


class Drawn(Strict):
    kind: Literal["drawn"] = Field(
        description="a drawn mask (M-5), in which a query always attends to its own position"
    )
    axes: Literal["S,S", "B,S,S", "H,S,S", "B,H,S,S"] = Field(description="the axes along which the mask varies")


class Blind(Strict):
    kind: Literal["blind"] = Field(description="some queries attend to no key, the others to every key (M-5)")
    queries: tuple[tuple[NonNegativeInt, ...], ...] = Field(description="the blind queries of each item")


class Mask(Strict):
    """A query may attend to the keys that are not padding and that the attention mask allows."""

    padding: Annotated[EndPadding | Holes, Field(discriminator="kind")] | None
    attention: Annotated[Causal | Drawn | Blind, Field(discriminator="kind")] | None
    bias: Literal["alibi"] | None = Field(description="a bias added to the scores before the mask (M-7)")

    def problem(self, batch: int, sequence: int, keys: int) -> str:
        """The reason why the mask does not fit these sizes; "" if it does. `keys`: T, the number of keys."""
        entries: tuple[tuple[int, ...], ...] | None
        match self.padding:
            case EndPadding(lengths=lengths):
                key, below = "mask.padding.lengths", 0
                entries = tuple((length,) for length in lengths)
            case Holes(positions=positions):
                key, entries, below = "mask.padding.positions", positions, 1
            case None:
                key, entries, below = "", None, 0
        if entries is not None and (problem := _range_problem(key, entries, batch, keys, below)):
            return problem
        if self.padding is not None and not any(map(any, self.valid(batch, keys))):
            return f"{key} leaves no position valid: there is nothing to compare"
        if isinstance(self.attention, Blind):
            return _range_problem("mask.attention.queries", self.attention.queries, batch, sequence, 1)
        return ""

    def valid(self, batch: int, sequence: int) -> tuple[tuple[bool, ...], ...]:
        """[B][S], true at the positions that are not padding (clause M-2)."""
        return _valid(self.padding, batch, sequence)


@lru_cache(maxsize=1024)  # each check needs the same mask several times
def _valid(padding: EndPadding | Holes | None, batch: int, sequence: int) -> tuple[tuple[bool, ...], ...]:
    match padding:
        case EndPadding(kind="right", lengths=lengths):
            padded = [set(range(length, sequence)) for length in lengths]
        case EndPadding(lengths=lengths):
            padded = [set(range(sequence - length)) for length in lengths]
        case Holes(positions=positions):
            padded = [set(holes) for holes in positions]
        case None:
            padded = [set()] * batch
    return tuple(tuple(s not in item for s in range(sequence)) for item in padded)


def _range_problem(key: str, entries: Sequence[tuple[int, ...]], batch: int, sequence: int, below: int) -> str:
    """The reason why entries do not fit, or "". `below`: 1 for positions, which are below S, 0 for lengths."""
    if len(entries) != batch:
        return f"{key} has {len(entries)} entries, batch is {batch}"
    largest = max((number for entry in entries for number in entry), default=0)
    return f"{key} has {largest}, sequence is {sequence}" if largest + below > sequence else ""
