"""The masks of a situation: which positions are padding, which query may attend to which key (clauses M-1 to M-7)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from encoder_conformance.spec.strict import Strict


class EndPadding(Strict):
    kind: Literal["right", "left"] = Field(description="the end of the sequence that the padding is at")
    lengths: tuple[NonNegativeInt, ...] = Field(description="the number of valid positions of each item")


class Holes(Strict):
    kind: Literal["holes"]
    positions: tuple[tuple[NonNegativeInt, ...], ...] = Field(description="the positions of each item that are padding")


class Causal(Strict):
    kind: Literal["causal"] = Field(description="a query attends to its own position and to those before it")


class Drawn(Strict):
    kind: Literal["drawn"] = Field(description="which key a query attends to is drawn (M-5); always its own position")
    axes: Literal["S,S", "B,S,S", "H,S,S", "B,H,S,S"] = Field(description="the axes along which the mask differs")


class Blind(Strict):
    kind: Literal["blind"] = Field(description="some queries attend to nothing, the others to everything (M-5)")
    queries: tuple[tuple[NonNegativeInt, ...], ...] = Field(description="the blind queries of each item")


class Mask(Strict):
    """Which keys a query may attend to: those that are not padding and that the attention mask allows."""

    padding: Annotated[EndPadding | Holes, Field(discriminator="kind")] | None
    attention: Annotated[Causal | Drawn | Blind, Field(discriminator="kind")] | None
    bias: Literal["alibi"] | None = Field(description="what is added to the scores before the mask (M-7)")

    def problem(self, batch: int, sequence: int, keys: int) -> str:
        """What is wrong with it at these sizes, `keys` being those that may be padding; "" if nothing is."""
        entries: tuple[tuple[int, ...], ...]
        match self.padding:
            case EndPadding(lengths=lengths):
                key, below = "mask.padding.lengths", 0
                entries = tuple((length,) for length in lengths)
            case Holes(positions=positions):
                key, entries, below = "mask.padding.positions", positions, 1
            case None:
                key, entries, below = "", ((),) * batch, 0
        if wrong := _outside(key, entries, batch, keys, below):
            return wrong
        if self.padding is not None and not any(map(any, self.valid(batch, keys))):
            return f"{key} leaves no position valid: there is nothing to compare"
        if isinstance(self.attention, Blind):
            return _outside("mask.attention.queries", self.attention.queries, batch, sequence, 1)
        return ""

    def valid(self, batch: int, sequence: int) -> tuple[tuple[bool, ...], ...]:
        """[B][S], true at the positions that hold data and not padding (clause M-2)."""
        return _valid(self.padding, batch, sequence)


@lru_cache(maxsize=1024)  # a run asks for the same ones a few times for each check
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


def _outside(key: str, entries: Sequence[tuple[int, ...]], batch: int, sequence: int, below: int) -> str:
    """`below` is 1 for positions, which are less than the sequence, and 0 for lengths."""
    if len(entries) != batch:
        return f"{key} has {len(entries)} entries, batch is {batch}"
    found = max((number for entry in entries for number in entry), default=0)
    return f"{key} has {found}, sequence is {sequence}" if found + below > sequence else ""
