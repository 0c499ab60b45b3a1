"""The situation language: inputs, mask, mode, numeric regime, and what is checked (clauses S-*)."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from harness.spec.layer import Family
from harness.spec.parameters import PARAMETER_NAMES
from harness.spec.strict import ClauseId, Identifier, Sentence, Strict

Level = Literal["required", "recommended", "optional"]
Check = Literal["output", "stages", "gradients"]
Mode = Literal["eval"]
Exponent = Annotated[int, Field(ge=-24, le=24)]


class Input(Strict):
    pattern: Literal["symmetric", "offset", "balanced"] = Field(
        description="the portable pattern that x is drawn from (P-4); balanced needs an even d_model"
    )
    exponent: Exponent = Field(description="x is the pattern's integers times two to this power")


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


class Situation(Strict):
    situation: Identifier = Field(description="the id, equal to the file's name, stable for ever")
    title: Sentence
    level: Level
    clauses: tuple[ClauseId, ...] = Field(min_length=1, description="clauses of specs/README.md this situation tests")
    families: tuple[Family, ...] = Field(min_length=1, description="the layer families this situation applies to")
    batch: PositiveInt
    sequence: PositiveInt
    input: Input
    parameter_exponents: dict[str, Exponent] = Field(
        description="parameters multiplied by two to this power, to reach a numeric regime; {} for none"
    )
    mask: Mask
    mode: Mode
    checks: tuple[Check, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> "Situation":
        if len(set(self.checks)) < len(self.checks):
            raise ValueError(f"checks names one twice: {', '.join(self.checks)}")
        unknown = sorted(set(self.parameter_exponents) - set(PARAMETER_NAMES))
        if unknown:
            raise ValueError(f"parameter_exponents names no parameter of the specification: {', '.join(unknown)}")
        if self.mask.padding is not None:
            self._check_padding(self.mask.padding)
        if isinstance(self.mask.attention, Blind):
            self._check_blind(self.mask.attention)
        return self

    def _check_padding(self, padding: EndPadding | Holes) -> None:
        if isinstance(padding, EndPadding):
            key, entries, largest = "mask.padding.lengths", len(padding.lengths), max(padding.lengths, default=0)
            too_large = largest > self.sequence
        else:
            key, entries = "mask.padding.positions", len(padding.positions)
            largest = max((position for holes in padding.positions for position in holes), default=0)
            too_large = largest >= self.sequence
        if entries != self.batch:
            raise ValueError(f"{key} has {entries} entries, batch is {self.batch}")
        if too_large:
            raise ValueError(f"{key} has {largest}, sequence is {self.sequence}")
        if not any(map(any, self.valid)):
            raise ValueError(f"{key} leaves no position valid: there is nothing to compare")

    def _check_blind(self, attention: Blind) -> None:
        if len(attention.queries) != self.batch:
            raise ValueError(f"mask.attention.queries has {len(attention.queries)} entries, batch is {self.batch}")
        largest = max((query for queries in attention.queries for query in queries), default=0)
        if largest >= self.sequence:
            raise ValueError(f"mask.attention.queries has {largest}, sequence is {self.sequence}")

    @property
    def valid(self) -> tuple[tuple[bool, ...], ...]:
        """[B][S], true at the positions that hold data and not padding (clause M-2)."""
        match self.mask.padding:
            case EndPadding(kind="right", lengths=lengths):
                padded = [set(range(length, self.sequence)) for length in lengths]
            case EndPadding(lengths=lengths):
                padded = [set(range(self.sequence - length)) for length in lengths]
            case Holes(positions=positions):
                padded = [set(holes) for holes in positions]
            case None:
                padded = [set()] * self.batch
        return tuple(tuple(s not in item for s in range(self.sequence)) for item in padded)
