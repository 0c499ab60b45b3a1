"""Where the positions of x lie, for a layer that reads it: 0 … S − 1, or otherwise (clause S-3).

A position has one coordinate, or two on a grid. `coordinates` are [B or 1, S, axes], of `valid` [B, S], true at what is
no padding; the first axis is 1 where they are the same for every item.
"""

from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from encoder_conformance.spec.axes import BS, BSA
from encoder_conformance.spec.strict import Strict


class _Place(Strict):
    def coordinates(self, valid: BS) -> BSA:
        """Where the positions lie, of `valid`, true at what is no padding."""
        raise NotImplementedError

    def problem(self, sequence: int, *, padded: bool) -> str:
        """The reason why they do not fit a sequence; "" if they do."""
        return ""


class Offset(_Place):
    """A piece of a longer sequence, as in decoding by pieces: `by` … `by` + S − 1."""

    kind: Literal["offset"]
    by: PositiveInt = Field(description="the coordinate of the first position")

    def coordinates(self, valid: BS) -> BSA:
        return _counted(valid.shape[1])[None] + float(self.by)


class LeftPadding(_Place):
    """Each item counts from its first valid position; padding before that has 0."""

    kind: Literal["left_padding"]

    def coordinates(self, valid: BS) -> BSA:
        B, S = valid.shape
        first = np.where(valid.any(axis=1), valid.argmax(axis=1), S)
        return np.asarray(np.maximum(_counted(S)[None] - first.reshape(B, 1, 1), 0.0))

    def problem(self, sequence: int, *, padded: bool) -> str:
        return "" if padded else "positions are left_padding, but mask.padding is null: there is none to count from"


class Restart(_Place):
    """Several texts packed into one row, each of which counts from 0."""

    kind: Literal["restart"]
    at: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        description="the positions, ascending, at which another text begins"
    )

    def coordinates(self, valid: BS) -> BSA:
        begins = np.zeros(valid.shape[1])
        begins[list(self.at)] = self.at
        return np.asarray((_counted(valid.shape[1]) - np.maximum.accumulate(begins)[:, None])[None])

    def problem(self, sequence: int, *, padded: bool) -> str:
        ascending = all(one < other for one, other in pairwise((*self.at, sequence)))
        return "" if ascending else f"positions.at is {list(self.at)}, not ascending and below sequence = {sequence}"


class Grid(_Place):
    """The patches of an image, row by row: a position has a row and a column."""

    kind: Literal["grid"]
    rows: PositiveInt
    columns: PositiveInt

    def coordinates(self, valid: BS) -> BSA:
        return np.indices((self.rows, self.columns)).reshape(2, -1).T[None].astype(np.float64)

    def problem(self, sequence: int, *, padded: bool) -> str:
        if self.rows * self.columns != sequence:
            return f"positions is a grid of {self.rows} × {self.columns}, but sequence is {sequence}"
        return ""


Positions = Annotated[Offset | LeftPadding | Restart | Grid, Field(discriminator="kind")]


def _counted(sequence: int) -> BSA:
    """[S, 1]: 0 … S − 1."""
    return np.arange(sequence, dtype=np.float64)[:, None]
