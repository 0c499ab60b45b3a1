"""The entries of a manifest: what an implementation cannot do, or does otherwise; when, why, and where to see it."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from encoder_conformance.impl.choices import ChoiceName, Chosen, Value
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import (
    Activation,
    Dropout,
    Epsilon,
    FullyMaskedRow,
    NormKind,
    PaddingContent,
    Part,
    Placement,
    Projections,
)
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Identifier, Link, Sentence, Strict

_One = TypeVar("_One")
Some = Annotated[
    Annotated[_One, Tag("one")] | Annotated[tuple[_One, ...], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "one"),
]
"""One value, or a list of several of which any will do."""


class When(Strict):
    """The checks that an entry of `unsupported` or `deviations` speaks of: those that agree with every key given."""

    check: Some[Check] | None = None
    dtype: Some[DtypeName] | None = None
    activation: Some[Activation] | None = None
    placement: Placement | None = None
    norm: NormKind | None = None
    epsilon: Some[Epsilon] | None = Field(default=None, description="the norms' epsilon, as the layer's file has it")
    part: Part | None = Field(default=None, description="a whole layer, or attention alone")
    stack: bool | None = None
    embedding: bool | None = Field(default=None, description="whether it takes token ids")
    projections: Projections | None = None
    num_heads: Literal["odd", "even"] | None = None
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    fully_masked_row: Some[FullyMaskedRow] | None = None
    attention_dropout: bool | None = None
    dropout_rates: Literal["none", "one", "several"] | None = Field(
        default=None, description="none: all rates are 0; one: all are the same"
    )
    padding_content: PaddingContent | None = None
    situation: Some[Identifier] | None = None
    choices: dict[ChoiceName, Value] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "When":
        if not self.model_fields_set:
            raise ValueError("names no key; an entry that matches everything is no entry")
        return self

    def matches(self, case: Case, dtype: str, check: Check) -> bool:
        whole: dict[str, object] = {  # attention alone has none of these, whatever its file says (E-17)
            "activation": case.layer.feed_forward.activation,
            "placement": case.layer.norm.placement,
            "norm": case.layer.norm.kind,
            "epsilon": case.layer.norm.epsilon,
        }
        facts = {
            **(whole if case.layer.part == "encoder_layer" else dict.fromkeys(whole)),
            "check": check,
            "dtype": dtype,
            "part": case.layer.part,
            "stack": case.layer.is_stack,
            "embedding": case.layer.embedding is not None,
            "projections": case.layer.attention.projections,
            "num_heads": "odd" if case.layer.attention.num_heads % 2 else "even",
            "qkv_bias": case.layer.attention.qkv_bias,
            "output_bias": case.layer.attention.output_bias,
            "fully_masked_row": case.layer.attention.fully_masked_row,
            "attention_dropout": case.layer.dropout.attention_weights > 0,
            "dropout_rates": _dropout_rates(case.layer.dropout),
            "padding_content": case.layer.padding_content,
            "situation": case.situation.situation,
        }
        return all(facts[key] in _several(getattr(self, key)) for key in self.model_fields_set)

    def of_variant(self, chosen: Chosen) -> "When | None":
        """What it says of one variant, where its choices are no longer in question; None if it speaks of others."""
        if not (self.choices or {}).items() <= chosen.items():
            return None
        left = self.model_fields_set - {"choices"}
        return When.model_construct(left, **{key: getattr(self, key) for key in left})


def _dropout_rates(dropout: Dropout) -> str:
    rates = set(dropout.model_dump().values())
    if len(rates) > 1:
        return "several"
    return "one" if rates != {0.0} else "none"


def _several(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


class Entry(Strict):
    """Something that an implementation cannot do, or does otherwise: of which checks, why, and where to see it."""

    when: When | None = Field(default=None, description="the variants and cases that have it; without it, all")
    reason: Sentence
    link: Link
    new: bool = Field(
        default=False, description="found here: nothing public was seen to say it, and the link is where it can be seen"
    )
    script: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+\.py$")] | None = Field(
        default=None, description="a file of docs/findings/ that shows it with the framework alone"
    )

    def of_variant(self, chosen: Chosen) -> Self | None:
        """What it says of one variant; None if it speaks of others."""
        if self.when is None:
            return self
        when = self.when.of_variant(chosen)
        return None if when is None else self.model_copy(update={"when": when})

    def is_of(self, case: Case, dtype: str, check: Check) -> bool:
        return self.when is None or self.when.matches(case, dtype, check)


class Unsupported(Entry):
    when: When


class Declared(Entry):
    """A deviation that this implementation has: it is judged against the specification patched by it."""

    deviation: Identifier
