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
    pattern: Literal["symmetric", "offset"] = Field(description="the portable pattern that x is drawn from (P-4)")
    exponent: Exponent = Field(description="x is the pattern's integers times two to this power")


class NoMask(Strict):
    kind: Literal["none"]


class KeyPadding(Strict):
    kind: Literal["key_padding"]
    lengths: tuple[NonNegativeInt, ...] = Field(description="valid positions of each item, from the left")


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
    mask: Annotated[NoMask | KeyPadding, Field(discriminator="kind")]
    mode: Mode
    checks: tuple[Check, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> "Situation":
        if len(set(self.checks)) < len(self.checks):
            raise ValueError(f"checks names one twice: {', '.join(self.checks)}")
        unknown = sorted(set(self.parameter_exponents) - set(PARAMETER_NAMES))
        if unknown:
            raise ValueError(f"parameter_exponents names no parameter of the specification: {', '.join(unknown)}")
        if isinstance(self.mask, KeyPadding):
            if len(self.mask.lengths) != self.batch:
                raise ValueError(f"mask.lengths has {len(self.mask.lengths)} entries, batch is {self.batch}")
            if not any(self.mask.lengths):
                raise ValueError("mask.lengths leaves no position valid: there is nothing to compare")
            if max(self.mask.lengths) > self.sequence:
                raise ValueError(f"mask.lengths has {max(self.mask.lengths)}, sequence is {self.sequence}")
        return self

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of valid positions of each item."""
        return self.mask.lengths if isinstance(self.mask, KeyPadding) else (self.sequence,) * self.batch
