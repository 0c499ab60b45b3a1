"""Forms that a step has elsewhere in the field: masks, weights made of scores, and scores; and what is done to a
tensor before it is used. `{0}` is what they are applied to, and `c` a number that is fitted to the data."""

OF_SCORES = (
    "{0} + c * abs(index({0}, -1) - index({0}, -2))",
    "{0} + c * (index({0}, -1) - index({0}, -2))",
    "{0} + c * index({0}, -1)",
    "where(index({0}, -1) == index({0}, -2), {0} + c, {0})",
    "{0} / sqrt(sum(query_heads ** 2, -1))",
    "c * (query_heads / sqrt(sum(query_heads ** 2, -1)) @ transpose(key_heads / sqrt(sum(key_heads ** 2, -1))))",
)
"""Scores {0} that depend on positions too, or on the directions of queries and keys alone."""
OF_MASK = (
    "~mask",
    "transpose(mask)",
    "flip(mask, -1)",
    "flip(mask, -2)",
    "flip(mask, 0)",
    "flip(mask, 1)",
    "roll(mask, 1, -1)",
    "roll(mask, -1, -1)",
    "roll(mask, 1, -2)",
    "roll(mask, -1, -2)",
    "roll(mask, 1, 0)",
    "roll(mask, 1, 1)",
    "permute(mask, 0, 0)",
    "permute(mask, 1, 0)",
    "mask | ~mask",
    "mask & (index(attention_scores, -1) <= index(attention_scores, -2))",
    "index(attention_scores, -1) <= index(attention_scores, -2)",
    "mask & (index(attention_scores, -1) != index(attention_scores, -2))",
    "mask | (index(attention_scores, -1) == index(attention_scores, -2))",
    *(
        f"mask & (index(attention_scores, -1) // {block} {comparison} index(attention_scores, -2) // {block})"
        for block in (2, 3, 4, 8, 16)
        for comparison in ("==", "<=", "!=")
    ),
    *(f"mask & (abs(index(attention_scores, -1) - index(attention_scores, -2)) <= {k})" for k in (1, 2, 3, 4, 8)),
)
OF_SOFTMAX = (
    "softmax({0}, mask, -2)",
    "softmax({0}, mask, 1)",
    "softmax({0}, mask, 0)",
    "softmax({0}, mask | ~mask) * mask",
    "softmax({0} * mask, mask | ~mask)",
    "softmax(where(mask, {0}, c), mask | ~mask)",
    "softmax({0} + where(mask, 0, c), mask | ~mask)",
    "where(mask, exp({0} - largest({0}, -1)), 0) / (c + sum(where(mask, exp({0} - largest({0}, -1)), 0), -1))",
    "where(mask, exp({0}), 0) / (c + sum(where(mask, exp({0}), 0), -1))",
    "where(mask, sigmoid({0}), 0)",
    "where(mask, exp({0} - largest({0}, -1)), 0)",
    "where(mask, maximum({0}, 0), 0)",
    "softmax({0}, mask) ** c",
    "softmax({0}, mask) / (c + sum(softmax({0}, mask), -2))",
    "maximum(softmax({0}, mask), c)",
    "log(softmax({0}, mask))",
)
"""Ways to make weights of the scores {0}."""
CENTRES = (
    "({0} - mean({0}, 0))",
    "({0} - mean({0}, 1))",
    "({0} - c * mean({0}, -1))",
    "({0} - sum({0}, -1))",
    "({0} - largest({0}, -1))",
    "({0} + mean({0}, -1))",
    "({0} / mean({0}, -1))",
    "({0} * mean({0}, -1))",
    "(c * {0} - mean({0}, -1))",
    "({0} + c)",
)
"""What a norm divides by its root mean square, where that is not its input {0} less the mean."""
_OF_ALL = ("largest(abs({0}))", "largest(abs({0}), -1)", "largest(abs({0}), -2)")
QUANTISERS = (
    *(f"round({{0}} / ({most} / {k})) * ({most} / {k})" for most in _OF_ALL for k in (127, 128, 7)),
    *(f"round({{0}} * {step}) / {step}" for step in (10, 100, 1000, 10000, 255, 256)),
    *(f"cast({{0}}, {dtype!r})" for dtype in ("bfloat16", "float16", "tf32", "float32")),
)
"""Integers of 8 and of 4 bits, with a scale for the tensor, each row or each column; decimals; narrower formats."""
SIZED = (
    "{0} / sqrt(sum({0} ** 2, -1))",
    "{0} / sqrt(mean({0} ** 2, -1) + epsilon)",
    "({0} - mean({0}, -1)) / sqrt(var({0}, -1) + epsilon)",
    "softmax({0}, {0} == {0})",
)
"""Rows that are brought to one size."""
OF_SQUARE = ("transpose({0})", "{0} + c * transpose({0})", "({0} + transpose({0})) / 2")
"""A square tensor {0}, and its transpose."""
OF_INDEX = (
    "== 0", "> 0", "== {0} - 1", "< {0} - 1", "< {0} // 2", "< {0} / 2", "% 2 == 0", "% 2 == 1", "% 3 == 0", "% 4 == 0",
)  # fmt: skip
"""Elements of an axis of the size {0} that may be treated unlike the others."""
OF_BLOCKS = tuple(f">= {{0}} // {block} * {block}" for block in (2, 3, 4))
"""Positions behind the last whole block of a kernel."""
