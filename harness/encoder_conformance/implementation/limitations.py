"""The entries `unsupported` and `deviations` of a manifest: for which checks, why, and where that is documented."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from encoder_conformance.implementation.choices import ChoiceName, Chosen, Value
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import (
    Activation,
    Epsilon,
    FullyMaskedRow,
    Layer,
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
"""One value, or a list of alternatives."""


class When(Strict):
    """The condition of an entry of `unsupported` or `deviations`: a check matches if it agrees with every given key."""

    check: Some[Check] | None = None
    dtype: Some[DtypeName] | None = None
    layer: Some[Identifier] | None = Field(default=None, description="the ids of layers")
    activation: Some[Activation] | None = None
    placement: Placement | None = None
    norm: NormKind | None = None
    epsilon: Some[Epsilon] | None = Field(default=None, description="the norms' epsilon, as in the layer's file")
    part: Part | None = Field(default=None, description="a whole layer, or attention alone")
    stack: bool | None = None
    embedding: bool | None = Field(default=None, description="whether it takes token ids")
    projections: Projections | None = None
    num_heads: Literal["odd", "even"] | None = None
    qkv_bias: bool | None = Field(default=None, description="whether any of query, key and value has a bias")
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
    def _is_not_empty(self) -> "When":
        if not self.model_fields_set:
            raise ValueError("names no key; an entry that matches everything is no entry")
        return self

    def matches(self, case: Case, dtype: str, check: Check) -> bool:
        of_whole_layer: dict[str, object] = {  # attention alone has none of these, whatever its file says (E-17)
            "activation": case.layer.feed_forward.activation,
            "placement": case.layer.norm.placement,
            "norm": case.layer.norm.kind,
            "epsilon": case.layer.norm.epsilon,
        }
        facts = {
            **(of_whole_layer if case.layer.part == "encoder_layer" else dict.fromkeys(of_whole_layer)),
            "check": check,
            "dtype": dtype,
            "layer": case.layer.layer,
            "part": case.layer.part,
            "stack": case.layer.is_stack,
            "embedding": case.layer.takes_ids,
            "projections": case.layer.attention.projections,
            "num_heads": "odd" if case.layer.attention.num_heads % 2 else "even",
            "qkv_bias": case.layer.attention.qkv_bias,
            "output_bias": case.layer.attention.output_bias,
            "fully_masked_row": case.layer.attention.fully_masked_row,
            "attention_dropout": case.layer.dropout.attention_weights > 0,
            "dropout_rates": _dropout_rates(case.layer),
            "padding_content": case.layer.padding_content,
            "situation": case.situation.situation,
        }
        return all(facts[key] in _as_tuple(getattr(self, key)) for key in self.model_fields_set)

    def of_variant(self, chosen: Chosen) -> "When | None":
        """The condition for one variant, without `choices`; None if it is about other variants."""
        if not (self.choices or {}).items() <= chosen.items():
            return None
        keys = self.model_fields_set - {"choices"}
        return When.model_construct(keys, **{key: getattr(self, key) for key in keys})


def _dropout_rates(layer: Layer) -> str:
    rates = set(layer.dropout.model_dump(exclude=None if layer.embedding else {"embedded"}).values())
    if len(rates) > 1:
        return "several"
    return "one" if rates != {0.0} else "none"


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


class ManifestEntry(Strict):
    """A limitation or a deviation of an implementation: its condition, its reason, and a public link."""

    when: When | None = Field(default=None, description="the variants and cases that have it; all by default")
    reason: Sentence
    link: Link
    new: bool = Field(
        default=False,
        description="found by this suite: no public report is known, and the link shows where it happens",
    )
    script: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+\.py$")] | None = Field(
        default=None, description="a file of docs/findings/ that reproduces it with the framework alone"
    )

    def of_variant(self, chosen: Chosen) -> Self | None:
        """The entry for one variant; None if it is about other variants."""
        if self.when is None:
            return self
        when = self.when.of_variant(chosen)
        return None if when is None else self.model_copy(update={"when": when})

    def is_of(self, case: Case, dtype: str, check: Check) -> bool:
        return self.when is None or self.when.matches(case, dtype, check)


class Unsupported(ManifestEntry):
    when: When


class Declared(ManifestEntry):
    """A declared deviation: the implementation is judged against the specification with the deviation's patch."""

    deviation: Identifier
