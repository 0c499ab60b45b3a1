"""The situation language: inputs, mask, mode, numeric regime, input format and checks (clauses S-*)."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, model_validator

from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.families import TOKEN_FAMILIES, Family
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.masking import Causal, Drawn, EndPadding, Mask
from encoder_conformance.spec.parameters import PARAMETER_NAMES
from encoder_conformance.spec.plain import plain
from encoder_conformance.spec.positions import Grid, Positions
from encoder_conformance.spec.strict import ClauseId, Identifier, Sentence, Strict

SituationLevel = Literal["required", "recommended", "optional"]
Check = Literal[
    "output", "weights", "stages", "gradients", "invariant", "refusal", "dropout", "initialisation"
]  # fmt: skip
Mode = Literal["eval", "train"]
Layout = Literal["batch_first", "sequence_first", "unbatched"]
Encoding = Literal["attend", "ignore", "integer", "float", "additive", "additive_float32"]
Invariant = Literal[
    "padding_content", "padding_length", "batch_independence", "permutation", "causality",
    "layout", "mask_encoding", "determinism", "train_without_dropout", "history",
]  # fmt: skip
Flaw = Literal["num_heads", "activation", "feature_size", "mask_shape", "input_dtype"]
Exponent = Annotated[int, Field(ge=-24, le=24)]

WITH_GOLDEN: frozenset[Check] = frozenset({"output", "weights", "stages", "gradients"})
"""The checks whose answers are judged by a golden.

The others need none, with one exception: a valid request follows each refusal, and a golden judges its `output` (J-6).
A situation with the check `refusal` therefore needs `equals`.
"""


class Input(Strict):
    pattern: Literal["symmetric", "offset", "raised", "balanced"] = Field(
        description="the portable pattern of x (P-4); balanced needs an even d_model"
    )
    exponent: Exponent = Field(description="x is the pattern's integers times two to this power")
    padding: Literal["as_drawn", "huge", "nan", "infinity"] = Field(
        description="the content of positions that are not valid (M-8): as drawn, 2^100, NaN or plus infinity"
    )


class Memory(Strict):
    """The second input, from whose positions keys and values are made (clause E-17)."""

    sequence: Annotated[int, Field(ge=1)] = Field(description="T, the number of its positions")


class InputFormat(Strict):
    """The format of a case's inputs; it changes no number (clauses S-2, M-9, B-3)."""

    layout: Layout = Field(description="of x and output: [B, S, D], [S, B, D], or [S, D] for one item (S-2)")
    masks: Encoding = Field(description="the encoding of mask elements (M-9)")
    rank: Literal[2, 3, 4] = Field(description="the number of axes of the masks (M-9)")
    padding: Literal["mask", "ids"] = Field(
        default="mask", description="padding is given as a mask, or by token id 0, of which the layer makes one (M-9)"
    )
    causal: Literal["mask", "flag", "both"] = Field(
        description="a causal mask is given as a mask, as a flag, or as both"
    )
    checkpoint: bool = Field(description="gradients with recomputed activations: gradient checkpointing (B-3)")


class Situation(Strict):
    situation: Identifier = Field(description="the id, equal to the file's name, stable for ever")
    title: Sentence
    level: SituationLevel
    clauses: tuple[ClauseId, ...] = Field(min_length=1, description="clauses of specs/README.md this situation tests")
    families: tuple[Family, ...] = Field(min_length=1, description="the layer families this situation applies to")
    equals: Identifier | None = Field(
        description="the situation whose goldens apply, if this one differs from it only in how it is given (G-4)"
    )
    batch: NonNegativeInt
    sequence: Annotated[int, Field(ge=1)]
    items: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] | None = Field(
        description="the items that are compared (G-5); null for all"
    )
    input: Input
    memory: Memory | None = plain(None, "for attention alone: the input of the key and value projections")
    positions: Positions | None = plain(None, "where the positions of x lie (S-3); null for 0 … S − 1")
    parameter_exponents: dict[str, Exponent] = Field(
        description="parameter → the power of two that it is multiplied by, to reach a numeric regime; {} for none"
    )
    mask: Mask
    given: InputFormat
    dtypes: tuple[DtypeName, ...] = Field(min_length=1, description="the formats that can represent its numbers (D-2)")
    mode: Mode
    invariant: Invariant | None = Field(description="the metamorphic relation that is checked (clauses I-*)")
    flaw: Flaw | None = Field(description="the defect of the request that `refusal` sends (clauses X-*)")
    checks: tuple[Check, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> "Situation":
        if len(set(self.checks)) < len(self.checks):
            raise ValueError(f"checks names one twice: {', '.join(self.checks)}")
        unknown = sorted(set(self.parameter_exponents) - set(PARAMETER_NAMES))
        if unknown:
            raise ValueError(f"parameter_exponents names no parameter of the specification: {', '.join(unknown)}")
        if self.items is not None and sorted(set(self.items) & set(range(self.batch))) != [*self.items]:
            raise ValueError(f"items are {list(self.items)}, not ascending numbers below batch = {self.batch}")
        problem = (
            self._memory_problem()
            or self.mask.problem(self.batch, self.sequence, self.keys)
            or self._positions_problem()
            or self._format_problem()
            or self._check_problem()
        )
        if problem:
            raise ValueError(problem)
        return self

    def _memory_problem(self) -> str:
        if (self.memory is None) != ("attention" not in self.families):
            return f"memory is {self.memory and 'given'}, but families are {', '.join(self.families)}"
        if self.memory is None:
            return ""
        others = sorted(set(self.families) - {"attention"})
        if others:
            return f"memory is given, but families has {', '.join(others)}"
        if self.mask.bias or isinstance(self.mask.attention, Causal):
            return "memory is given, but mask has a causal mask or a bias, which are of positions in one sequence"
        if self.given.layout != "batch_first" or self.input.padding != "as_drawn" or self.items is not None:
            return "memory is given, but not batch_first, as drawn, and with all items compared"
        if not set(self.checks) <= WITH_GOLDEN:
            return f"memory is given, but checks are {', '.join(self.checks)}: only those with a golden support it"
        return ""

    def _positions_problem(self) -> str:
        if self.positions is None:
            return ""
        if not {*self.families} <= {*TOKEN_FAMILIES, "rotary", "shipped_rotary"}:
            return (
                "positions are given, which needs families of layers that take token ids or turn: no others read them"
            )
        if isinstance(self.positions, Grid):
            return "positions are a grid, which has two axes, and what is added to token ids has one (E-16)"
        if self.given.layout != "batch_first" or not {*self.checks} <= WITH_GOLDEN:
            return "positions are given, but not batch_first, and with the checks alone that have a golden"
        return self.positions.problem(self.sequence, padded=self.mask.padding is not None)

    def _format_problem(self) -> str:
        given, attention = self.given, self.mask.attention
        if given.padding == "ids" and (self.mask.padding is None or not {*self.families} <= {*TOKEN_FAMILIES}):
            return "given.padding is ids, which needs mask.padding and families of layers that take token ids"
        if given.layout == "unbatched" and (self.batch != 1 or given.rank != 2):
            return "given.layout is unbatched, which needs batch 1 and masks of rank 2"
        if given.layout != "batch_first" and not set(self.checks) <= {"output", "gradients"}:
            return f"given.layout is {given.layout}, but stages and weights have no other layout than batch_first"
        if given.rank == 2 and isinstance(attention, Drawn) and attention.axes != "S,S":
            return f"given.rank is 2, but mask.attention differs along {attention.axes}"
        return ""

    def _check_problem(self) -> str:
        narrow = [name for name in self.dtypes if name not in ("float64", "float32")]
        if narrow and "gradients" in self.checks:
            return f"checks has gradients, which are judged in float64 and float32, but dtypes has {', '.join(narrow)}"
        for key, value, check in (("invariant", self.invariant, "invariant"), ("flaw", self.flaw, "refusal")):
            if (value is None) == (check in self.checks):
                return f"{key} is {value or 'null'}, but checks {'has' if value is None else 'lacks'} {check}"
        if self.equals and not set(self.checks) <= {*WITH_GOLDEN, "refusal"}:
            return f"equals is {self.equals}, but not every check has a golden"
        if self.invariant and (problem := unfit(self.invariant, self.batch, self.sequence, self.mask)):
            return f"invariant is {self.invariant}, but {problem}"
        if self.invariant and self.input.padding != "as_drawn":
            return f"invariant is {self.invariant}, but input.padding is {self.input.padding}, which M-8's cases judge"
        if self.invariant == "train_without_dropout" and self.mode != "train":
            return f"invariant is {self.invariant}, but mode is {self.mode}"
        if self.flaw and self.equals is None:
            return f"equals is null, but a golden judges the valid request that follows flaw {self.flaw} (J-6)"
        if self.flaw == "mask_shape" and (self.mask.padding is None or self.batch < 2):
            return "flaw is mask_shape, which needs mask.padding and a batch of 2 (X-5)"
        if self.flaw and self.given.layout != "batch_first":
            return f"flaw is {self.flaw}, but given.layout is {self.given.layout}: flawed requests are batch_first"
        return ""

    def fits(self, layer: Layer) -> bool:
        """Whether the layer has a case in this situation, by its family and by what it reads."""
        return layer.family in self.families and self.holds_for(layer)

    def holds_for(self, layer: Layer) -> bool:
        """Whether what the situation asks is true of the layer: in one that reads positions they are no set (I-4)."""
        return not (self.invariant == "permutation" and layer.reads_positions)

    @property
    def keys(self) -> int:
        """T, the number of keys: the positions of the memory, or of x if there is no memory (clause E-17)."""
        return self.sequence if self.memory is None else self.memory.sequence

    @property
    def valid(self) -> tuple[tuple[bool, ...], ...]:
        """[B][T], true at the positions of the keys that are not padding (clause M-2)."""
        return self.mask.valid(self.batch, self.keys)


def unfit(invariant: str, batch: int, sequence: int, mask: Mask) -> str:
    """The reason why an invariant does not apply to inputs of this size under this mask; "" if it applies."""
    padding, attention = mask.padding, mask.attention
    any_size = attention is None or isinstance(attention, Causal)  # other masks are drawn or listed for one size
    match invariant:
        case _ if batch == 0:
            return "batch is 0: there is nothing to compare"
        case "padding_content" if padding is None:
            return "mask.padding is null: there is no padding whose content could differ"
        case "padding_length" if isinstance(padding, EndPadding) and padding.kind == "left":
            return "mask.padding is left: more of it would move every position"
        case "padding_length" | "batch_independence" if not any_size:
            return "mask.attention is made for one size: it must be null or causal if the size differs"
        case "batch_independence" if batch < 2:
            return "batch is 1: there is no other item"
        case "permutation" if attention is not None or mask.bias is not None:
            return "mask.attention or mask.bias tells positions apart: it is null where they are permuted"
        case "causality" if not isinstance(attention, Causal):
            return "mask.attention is not causal"
        case "permutation" | "causality" if sequence < 3:
            return f"sequence is {sequence}: there are too few positions to tell apart"
        case "mask_encoding" if padding is None and attention is None:
            return "there is no mask to give in another form"
        case "mask_encoding" if isinstance(attention, Drawn) and attention.axes != "S,S":
            return f"mask.attention differs along {attention.axes}: it cannot be given as [S, S]"
    return ""
