"""The families of layers: each situation lists those that it applies to."""

from typing import Literal

from encoder_conformance.spec.contradictions import Contradiction

Family = Literal[
    "small", "variants", "rotary", "relative", "combinations", "arrangements", "rows", "nan_rows", "published",
    "published_choices", "sized", "vision", "stacks", "deep_stacks", "encoders", "published_encoder", "token_dropout",
    "dropout", "attention", "whole_encoders", "appended_keys", "shipped", "shipped_rotary",
]  # fmt: skip
SHIPPED: frozenset[Family] = frozenset({"shipped", "shipped_rotary"})
"""Families of the layers of published encoders (rule L-8)."""
RECOMMENDED_AT_MOST: frozenset[Family] = SHIPPED.union({"published_choices", "deep_stacks"})
"""Families of layers whose choices others cover: large ones, and published encoders. None of their cases is required
(rule V-9)."""
STACK_FAMILIES: tuple[Family, ...] = ("stacks", "deep_stacks")
TOKEN_FAMILIES: tuple[Family, ...] = ("encoders", "published_encoder", "token_dropout", "whole_encoders")
"""Families of stacks that take x, and of layers and stacks with an embedding. All others are of one layer."""
UNFIT_FAMILIES = (
    Contradiction(
        "family",
        "part",
        lambda family, part: (family == "attention") != (part == "attention"),
        "attention alone has the family attention, and nothing else has",
    ),
    Contradiction(
        "family",
        "embedding",
        lambda family, embedding: (family in TOKEN_FAMILIES) != (embedding is not None),
        f"what has an embedding has the family {' or '.join(TOKEN_FAMILIES)}, and nothing else has",
    ),
    Contradiction(
        "family",
        "stack",
        lambda family, stack: family not in TOKEN_FAMILIES and (family in STACK_FAMILIES) != stack.is_several,
        f"a stack that takes x has the family {' or '.join(STACK_FAMILIES)}, and nothing else has",
    ),
)
"""Families whose situations do not fit a layer (the definition of *layer*)."""
