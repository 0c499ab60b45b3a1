"""Keys of a layer that contradict each other, in one table (rule L-5)."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import BaseModel

from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.plan import COMMON_BIAS, OWN_BIAS


@dataclass(frozen=True)
class Contradiction:
    """Two keys, whether their values contradict each other, and the reason. A dot leads into a mapping."""

    first: str
    second: str
    holds: Callable[[Any, Any], bool]
    reason: str


def _of_attention_alone(key: str, plain: object, reason: str) -> Contradiction:
    """Attention alone has a key at its plain value."""
    return Contradiction(
        "part", key, lambda part, own: part == "attention" and own != plain, f"attention alone {reason} (E-17)"
    )


CONTRADICTIONS = (
    Contradiction(
        "attention.num_heads",
        "d_model",
        lambda num_heads, d_model: d_model % num_heads != 0,
        "the heads share the features evenly (L-1)",
    ),
    Contradiction(
        "attention.masked_score",
        "attention.fully_masked_row",
        lambda score, row: score != "minus_infinity" and row != "uniform",
        "a query whose scores are all the same number has uniform weights (M-6)",
    ),
    _of_attention_alone("stack.layers", 1, "is not stacked"),
    _of_attention_alone("stack.final_norm", False, "has no norm"),
    _of_attention_alone("embedding", None, "takes x and a memory, and no token ids"),
    Contradiction(
        "dropout.embedded",
        "embedding",
        lambda rate, embedding: rate > 0 and embedding is None,
        "there are no embedded tokens to drop (A-1)",
    ),
    *(
        Contradiction(
            own,
            f"{part}.{COMMON_BIAS[part]}",
            lambda own, common: own is not None and (own or not common),
            f"{COMMON_BIAS[part]} is true where any of its maps has a bias, and a map's own key says only that it has "
            "none (L-3)",
        )
        for own in OWN_BIAS
        for part in (own.partition(".")[0],)
    ),
    Contradiction(
        "attention.qkv_bias",
        "attention",
        lambda any_has, own: any_has and (own.query_bias, own.key_bias, own.value_bias) == (False,) * 3,
        "where none of the three has a bias, qkv_bias is false (L-3)",
    ),
    Contradiction(
        "feed_forward.hidden_bias",
        "feed_forward.output_bias",
        lambda hidden, output: (hidden, output) == (False, False),
        "where neither map has a bias, bias is false (L-3)",
    ),
)
"""The rows that every layer keeps, wherever it comes from."""


def contradictions(model: BaseModel, table: Iterable[Contradiction]) -> Iterator[str]:
    """A sentence for each row of the table that holds: both keys, their values and the reason."""
    for row in table:
        first, second = (reduce(getattr, key.split("."), model) for key in (row.first, row.second))
        if row.holds(first, second):
            values = f"{row.first} = {_written(first)} contradicts {row.second} = {_written(second)}"
            yield f"{values}: {row.reason}"


def _written(value: object) -> str:
    """A value as YAML writes it in one line."""
    if isinstance(value, BaseModel):
        return f"{{{', '.join(f'{key}: {_written(inner)}' for key, inner in whole(value).items())}}}"
    return value if isinstance(value, str) else json.dumps(value)
