"""Matches encoder layers, or a stack of them, in the operations that the output is computed from."""

from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import TypeVar

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
    Weights,
)
from encoder_conformance.spec.axes import Array

Kind = TypeVar("Kind", bound=Operation)


@dataclass(frozen=True)
class EncoderLayer:
    """One encoder layer: stage → the operation that shows it, in the order of the specification.

    `input` is the operation before it, `columns` those of the linear maps that are query, key and value, head by head.
    """

    placement: str
    input: Operation
    steps: dict[str, Operation]
    columns: dict[str, Array]

    def of(self, kind: type[Kind]) -> dict[str, Kind]:
        """The steps of one kind, by stage."""
        return {stage: step for stage, step in self.steps.items() if isinstance(step, kind)}

    def first(self, kind: type[Kind]) -> Kind:
        return next(iter(self.of(kind).values()))

    @property
    def output(self) -> Operation:
        return self.steps["norm2" if self.placement == "post" else "residual2"]


@dataclass(frozen=True)
class Encoder:
    layers: list[EncoderLayer]
    final_norm: TracedNorm | None


def match_encoder(output: Operation) -> Encoder:
    """Raises UnsupportedPattern, which names the operation that does not fit."""
    ends: list[tuple[Operation, TracedNorm | None]] = [(output, None)]
    if isinstance(output, TracedNorm):
        ends.append((output.of.operation, output))
    reasons = []
    for last, final in ends:
        try:
            layers = [_layer(last)]
        except UnsupportedPattern as reason:
            reasons.append(reason)
            continue
        while not isinstance(layers[0].input, TracedInput):
            layers.insert(0, _layer(layers[0].input))
        return Encoder(layers, final)
    raise reasons[0] if _is_post(output) else reasons[-1]


def _is_post(output: Operation) -> bool:
    """Whether it is a norm, and one side of the residual sum under it is a norm, too: a post-norm layer's."""
    total = output.of.operation if isinstance(output, TracedNorm) else None
    return isinstance(total, Sum) and any(isinstance(side, TracedNorm) for side in total.sides)


def _layer(last: Operation) -> EncoderLayer:
    """The layer whose output this is."""
    residual2 = last.of.operation if isinstance(last, TracedNorm) else last
    if not isinstance(residual2, Sum):
        raise UnsupportedPattern(
            f"a residual sum was looked for at {residual2.name!r}, and there is {formula(residual2)}"
        )
    skip, output, activation = _branch(residual2, Activation, "a feed-forward network")
    hidden = activation.of.operation
    if not isinstance(hidden, Linear):
        raise UnsupportedPattern(
            f"the activation {activation.function} is of {formula(hidden)}, and not of a linear map"
        )
    norm1, norm2, residual1 = (
        _post_norm(last, skip, hidden) if isinstance(last, TracedNorm) else _pre_norm(skip, hidden)
    )
    if not isinstance(residual1, Sum):
        raise UnsupportedPattern(f"the first residual sum is missing: there is {formula(residual1)}")
    input, attention_output, context = _branch(residual1, Context, "attention")
    attention, columns, attended = _attention(context)
    adds = f"the first residual sum adds {formula(input)}, and attention takes {formula(attended)}"
    if norm1 is None:
        if not isinstance(attended, TracedNorm) or attended.of.operation is not input:
            raise UnsupportedPattern(f"{adds}, which is not its norm")
        norm1 = attended
    elif attended is not input:
        raise UnsupportedPattern(adds)
    steps = {
        "norm1": norm1, **attention, "attention_output": attention_output, "residual1": residual1, "norm2": norm2,
        "ffn_hidden": hidden, "ffn_activation": activation, "ffn_output": output, "residual2": residual2,
    }  # fmt: skip
    return EncoderLayer("post" if isinstance(last, TracedNorm) else "pre", input, steps, columns)


def _branch(total: Sum, kind: type[Kind], what: str) -> tuple[Operation, Linear, Kind]:
    """The two sides of a residual sum: what is skipped, and the linear map of the operation of this kind."""
    for skip, branch in permutations(total.sides):
        if isinstance(branch, Linear) and isinstance(branch.of.operation, kind):
            return skip, branch, branch.of.operation
        if kind is Context and isinstance(branch, Context):
            raise UnsupportedPattern("attention has no output projection")
    raise UnsupportedPattern(
        f"{what} was looked for in the sum {total.name!r}, and it adds {' and '.join(map(formula, total.sides))}",
        "sandwich" if kind is Context and any(map(_is_normed_attention, total.sides)) else None,
    )


def _is_normed_attention(side: Operation) -> bool:
    """Whether it is the norm of what attention gives."""
    inner = side.of.operation if isinstance(side, TracedNorm) else None
    return isinstance(inner, Linear) and isinstance(inner.of.operation, Context)


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
        skipped = residual1.sides if isinstance(residual1, Sum) else ()
        side_by_side = isinstance(norm2, TracedNorm) and norm2.of.operation in skipped
        raise UnsupportedPattern(
            f"the second residual sum adds {formula(residual1)}, and the feed-forward network takes {formula(norm2)}, "
            "which is not its norm: neither a pre-norm layer nor a post-norm one",
            "parallel" if side_by_side else None,
        )
    return None, norm2, residual1


def _attention(context: Context) -> tuple[dict[str, Operation], dict[str, Array], Operation]:
    """The steps of attention, the columns that are query, key and value, and the operation that all three project."""
    weights, scores = context.of, context.of.of
    sides = [(scores.first.operation, scores.first_heads), (scores.second.operation, scores.second_heads)]
    sides = [*(sides if weights.query_first else sides[::-1]), (context.value.operation, context.value_heads)]
    steps: dict[str, Operation] = {}
    columns, sources = {}, []
    for name, (operation, heads) in zip(("query", "key", "value"), sides, strict=True):
        columns[name] = heads.reshape(-1)
        steps[name] = linear = _projection(operation, columns[name], name)
        if linear.of.operation not in sources:
            sources.append(linear.of.operation)
    if len(sources) > 1:
        raise UnsupportedPattern(
            f"query, key and value are made of different things: {' and '.join(map(formula, sources))}"
        )
    steps |= {"attention_scores": scores, "attention_weights": weights, "context": context}
    return steps, columns, sources[0]


def _projection(operation: Operation, columns: Array, what: str) -> Linear:
    """The linear map of which query, key or value are columns."""
    if not isinstance(operation, Linear):
        normed = isinstance(operation, TracedNorm) and isinstance(operation.of.operation, Linear)
        raise UnsupportedPattern(
            f"{what} is no linear map: it is {formula(operation)}", "qk_norm" if normed and what != "value" else None
        )
    if len(set(columns.tolist())) < len(columns):
        raise UnsupportedPattern(
            f"several heads share their {what}: grouped-query attention, which the specification does not know",
            "grouped_queries",
        )
    return operation


def formula(operation: Operation, depth: int = 3) -> str:
    """An operation as a formula, abbreviated."""
    if depth == 0:
        return "…"

    inner = partial(formula, depth=depth - 1)
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
