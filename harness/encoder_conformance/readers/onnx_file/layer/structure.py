"""Matches encoder layers, or a stack of them, in the operations that the output is computed from."""

from dataclasses import dataclass

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Context,
    Linear,
    Operation,
    Scores,
    Sum,
    TracedInput,
    TracedNorm,
    UnsupportedPattern,
    View,
    Weights,
)
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class Projection:
    """The columns of a linear map that are query, key or value, in the order of the heads."""

    linear: Linear
    columns: Array


@dataclass(frozen=True)
class EncoderLayer:
    """The operations of one encoder layer; `input` is the operation before it."""

    placement: str
    input: Operation
    norm1: TracedNorm
    query: Projection
    key: Projection
    value: Projection
    scores: Scores
    weights: Weights
    context: Context
    attention_output: Linear
    residual1: Sum
    norm2: TracedNorm
    hidden: Linear
    activation: Activation
    ffn_output: Linear
    residual2: Sum

    @property
    def output(self) -> Operation:
        return self.norm2 if self.placement == "post" else self.residual2


@dataclass(frozen=True)
class Encoder:
    layers: list[EncoderLayer]
    final_norm: TracedNorm | None


def match_encoder(output: Operation) -> Encoder:
    """Raises UnsupportedPattern, which names the operation that does not fit."""
    final, operation, layers = None, output, []
    if isinstance(operation, TracedNorm):
        try:
            layers = [_layer(operation)]
        except UnsupportedPattern as reason:
            try:
                layers = [_layer(operation.of.operation)]
                final = operation
            except UnsupportedPattern as other:
                raise (reason if _is_post(operation) else other) from None
    else:
        layers = [_layer(operation)]
    while not isinstance(layers[0].input, TracedInput):
        layers.insert(0, _layer(layers[0].input))
    return Encoder(layers, final)


def _is_post(operation: TracedNorm) -> bool:
    """Whether one side of the residual sum under a norm is itself a norm: a post-norm layer's."""
    total = operation.of.operation
    return isinstance(total, Sum) and any(isinstance(side.operation, TracedNorm) for side in (total.one, total.other))


def _layer(last: Operation) -> EncoderLayer:
    """The layer whose output this is."""
    placement = "post" if isinstance(last, TracedNorm) else "pre"
    residual2 = last.of.operation if isinstance(last, TracedNorm) else last
    if not isinstance(residual2, Sum):
        raise UnsupportedPattern(
            f"a residual sum was looked for at {residual2.name!r}, and there is {formula(residual2)}"
        )
    skip, output, activation, hidden = _feed_forward(residual2)
    norm1, norm2, residual1 = (
        _post_norm(last, skip, hidden) if isinstance(last, TracedNorm) else _pre_norm(skip, hidden)
    )
    if not isinstance(residual1, Sum):
        raise UnsupportedPattern(f"the first residual sum is missing: there is {formula(residual1)}")
    input, attention_output, context = _attention(residual1)
    projections, attended = _projections(context)
    adds = f"the first residual sum adds {formula(input)}, and attention takes {formula(attended)}"
    if norm1 is None:
        if not isinstance(attended, TracedNorm) or attended.of.operation is not input:
            raise UnsupportedPattern(f"{adds}, which is not its norm")
        norm1 = attended
    elif attended is not input:
        raise UnsupportedPattern(adds)
    query, key, value = projections
    return EncoderLayer(
        placement, input, norm1, query, key, value, context.of.of, context.of, context, attention_output, residual1,
        norm2, hidden, activation, output, residual2,
    )  # fmt: skip


def _post_norm(norm2: TracedNorm, skip: Operation, hidden: Linear) -> tuple[TracedNorm, TracedNorm, Operation]:
    """Both norms of a post-norm layer and its first residual sum."""
    if hidden.of.operation is not skip:
        raise UnsupportedPattern(
            f"the second residual sum adds {formula(skip)}, and the feed-forward network takes "
            f"{formula(hidden.of.operation)}: in a post-norm layer they are one"
        )
    if not isinstance(skip, TracedNorm):
        raise UnsupportedPattern(f"the first norm of a post-norm layer is missing: there is {formula(skip)}")
    return skip, norm2, skip.of.operation


def _pre_norm(residual1: Operation, hidden: Linear) -> tuple[None, TracedNorm, Operation]:
    """The second norm of a pre-norm layer and its first residual sum; attention takes the first norm."""
    norm2 = hidden.of.operation
    if not isinstance(norm2, TracedNorm) or norm2.of.operation is not residual1:
        raise UnsupportedPattern(
            f"the second residual sum adds {formula(residual1)}, and the feed-forward network takes {formula(norm2)}, "
            "which is not its norm: neither a pre-norm layer nor a post-norm one",
            "parallel" if _side_by_side(residual1, norm2) else None,
        )
    return None, norm2, residual1


def _side_by_side(residual1: Operation, given: Operation) -> bool:
    """Whether the feed-forward network takes the norm of what the first residual sum skips."""
    skipped = [side.operation for side in (residual1.one, residual1.other)] if isinstance(residual1, Sum) else []
    return isinstance(given, TracedNorm) and given.of.operation in skipped


def _projections(context: Context) -> tuple[list[Projection], Operation]:
    """Query, key and value, and the operation that all three project."""
    weights, scores = context.of, context.of.of
    first, second = (scores.first, scores.first_heads), (scores.second, scores.second_heads)
    query, key = (first, second) if weights.query_first else (second, first)
    sides = {"query": query, "key": key, "value": (context.value, context.value_heads)}
    projections = [_projection(*side, name) for name, side in sides.items()]
    sources = list({id(p.linear.of.operation): p.linear.of.operation for p in projections}.values())
    if len(sources) > 1:
        raise UnsupportedPattern(
            f"query, key and value are made of different things: {' and '.join(map(formula, sources))}"
        )
    return projections, sources[0]


def _feed_forward(total: Sum) -> tuple[Operation, Linear, Activation, Linear]:
    """The skip connection of a residual sum, and the feed-forward network beside it, last operation first."""
    for skip, branch in ((total.one.operation, total.other.operation), (total.other.operation, total.one.operation)):
        if isinstance(branch, Linear) and isinstance(branch.of.operation, Activation):
            activation = branch.of.operation
            hidden = activation.of.operation
            if not isinstance(hidden, Linear):
                raise UnsupportedPattern(
                    f"the activation {activation.function} is of {formula(hidden)}, and not of a linear map"
                )
            return skip, branch, activation, hidden
    raise UnsupportedPattern(
        f"a feed-forward network was looked for in the sum {total.name!r}, "
        f"and it adds {formula(total.one.operation)} and {formula(total.other.operation)}"
    )


def _attention(total: Sum) -> tuple[Operation, Linear, Context]:
    for skip, branch in ((total.one.operation, total.other.operation), (total.other.operation, total.one.operation)):
        if isinstance(branch, Linear) and isinstance(branch.of.operation, Context):
            return skip, branch, branch.of.operation
        if isinstance(branch, Context):
            raise UnsupportedPattern("attention has no output projection")
    raise UnsupportedPattern(
        f"attention was looked for in the sum {total.name!r}, "
        f"and it adds {formula(total.one.operation)} and {formula(total.other.operation)}",
        "sandwich" if _normed_attention(total) else None,
    )


def _normed_attention(total: Sum) -> bool:
    """Whether one side of a sum is the norm of what attention gives."""
    for side in (total.one.operation, total.other.operation):
        inner = side.of.operation if isinstance(side, TracedNorm) else None
        if isinstance(inner, Linear) and isinstance(inner.of.operation, Context):
            return True
    return False


def _projection(view: View, heads: Array, what: str) -> Projection:
    linear = view.operation
    if not isinstance(linear, Linear):
        normed = isinstance(linear, TracedNorm) and isinstance(linear.of.operation, Linear)
        raise UnsupportedPattern(
            f"{what} is no linear map: it is {formula(linear)}", "qk_norm" if normed and what != "value" else None
        )
    columns = heads.reshape(-1)
    if len(set(columns.tolist())) < len(columns):
        raise UnsupportedPattern(
            f"several heads share their {what}: grouped-query attention, which the specification does not know",
            "grouped_queries",
        )
    return Projection(linear, columns)


def formula(operation: Operation, depth: int = 3) -> str:
    """An operation as a formula, abbreviated."""
    if depth == 0:
        return "…"

    def inner(of: Operation) -> str:
        return formula(of, depth - 1)

    match operation:
        case TracedInput():
            return f"the input {operation.name!r}"
        case TracedNorm():
            return f"{operation.form.kind}({inner(operation.of.operation)})"
        case Linear():
            return f"linear({inner(operation.of.operation)})"
        case Activation():
            return f"{operation.function}({inner(operation.of.operation)})"
        case Scores():
            return "scores of attention"
        case Weights():
            return "weights of attention"
        case Context():
            return f"attention({inner(operation.value.operation)})"
        case Sum():
            return f"({inner(operation.one.operation)} + {inner(operation.other.operation)})"
    return repr(operation.name)
