"""Reads an encoder layer, or a stack of them, off the named things that the output is made of."""

from dataclasses import dataclass, field

from encoder_conformance.impls.onnx_file.tracing.expressions import (
    Activation,
    Array,
    Context,
    Given,
    Linear,
    Norm,
    NotUnderstood,
    Root,
    Scores,
    Sum,
    View,
    Weights,
)


@dataclass(frozen=True)
class Projection:
    """A linear map of which some columns are query's, key's or value's, in the order of its heads."""

    linear: Linear
    columns: Array


@dataclass(frozen=True)
class OneLayer:
    """One encoder layer as it was found; `into` is what it takes."""

    placement: str
    into: Root
    norm1: Norm
    query: Projection
    key: Projection
    value: Projection
    scores: Scores
    weights: Weights
    context: Context
    attention_output: Linear
    residual1: Sum
    norm2: Norm
    hidden: Linear
    activation: Activation
    ffn_output: Linear
    residual2: Sum

    @property
    def output(self) -> Root:
        return self.norm2 if self.placement == "post" else self.residual2


@dataclass(frozen=True)
class Encoder:
    layers: list[OneLayer]
    final_norm: Norm | None
    given: Given = field(repr=False)


def encoder_of(output: Root) -> Encoder:
    """Raises NotUnderstood, with what stands where something else should."""
    final, root, layers = None, output, []
    if isinstance(root, Norm):
        try:
            layers = [_layer(root)]
        except NotUnderstood as reason:
            try:
                layers = [_layer(root.of.root)]
                final = root
            except NotUnderstood as other:
                raise (reason if isinstance(root.of.root, Sum) and _is_post(root) else other) from None
    else:
        layers = [_layer(root)]
    while not isinstance(layers[0].into, Given):
        layers.insert(0, _layer(layers[0].into))
    return Encoder(layers, final, layers[0].into)


def _is_post(root: Norm) -> bool:
    """Whether a norm's feed-forward network takes what its residual is, and not a norm of that."""
    total = root.of.root
    if not isinstance(total, Sum):
        return False
    sides = total.one.root, total.other.root
    return any(isinstance(side, Norm) for side in sides)


def _layer(root: Root) -> OneLayer:
    """The layer whose output this is."""
    norm2 = root if isinstance(root, Norm) else None
    residual2 = norm2.of.root if norm2 else root
    if not isinstance(residual2, Sum):
        raise NotUnderstood(f"a residual sum was looked for at {residual2.name!r}, and there is {said(residual2)}")
    skip, output, activation, hidden = _feed_forward(residual2)
    into_ffn = hidden.of.root
    placement = "post" if norm2 else "pre"
    if placement == "post":
        if into_ffn is not skip:
            raise NotUnderstood(
                f"the second residual sum adds {said(skip)}, and the feed-forward network takes {said(into_ffn)}: "
                "in a post-norm layer they are one"
            )
        norm1 = skip
        residual1 = norm1.of.root if isinstance(norm1, Norm) else norm1
        if not isinstance(norm1, Norm):
            raise NotUnderstood(f"the first norm of a post-norm layer is missing: there is {said(norm1)}")
    else:
        residual1 = skip
        norm2 = into_ffn if isinstance(into_ffn, Norm) else None
        if norm2 is None or norm2.of.root is not residual1:
            raise NotUnderstood(
                f"the second residual sum adds {said(residual1)}, and the feed-forward network takes {said(into_ffn)}, "
                "which is not its norm: neither a pre-norm layer nor a post-norm one"
            )
    if not isinstance(residual1, Sum):
        raise NotUnderstood(f"the first residual sum is missing: there is {said(residual1)}")
    into, attention_output, context = _attention_of(residual1)
    weights, scores = context.of, context.of.of
    first, second = (scores.first, scores.first_heads), (scores.second, scores.second_heads)
    query, key = (first, second) if weights.query_first else (second, first)
    projections = [_projection(*each, what) for each, what in ((query, "query"), (key, "key"))]
    projections.append(_projection(context.value, context.value_heads, "value"))
    sources = {id(p.linear.of.root): p.linear.of.root for p in projections}
    if len(sources) > 1:
        raise NotUnderstood(
            f"query, key and value are made of different things: {' and '.join(map(said, sources.values()))}"
        )
    [attended] = sources.values()
    if placement == "post":
        if attended is not into:
            raise NotUnderstood(f"the first residual sum adds {said(into)}, and attention takes {said(attended)}")
    else:
        norm1 = attended
        if not isinstance(norm1, Norm) or norm1.of.root is not into:
            raise NotUnderstood(
                f"the first residual sum adds {said(into)}, and attention takes {said(attended)}, which is not its norm"
            )
    return OneLayer(
        placement, into, norm1, *projections, scores, weights, context, attention_output, residual1, norm2, hidden,
        activation, output, residual2,
    )  # fmt: skip


def _feed_forward(total: Sum) -> tuple[Root, Linear, Activation, Linear]:
    """What a residual sum adds to a feed-forward network, and that network from its end."""
    for skip, branch in ((total.one.root, total.other.root), (total.other.root, total.one.root)):
        if isinstance(branch, Linear) and isinstance(branch.of.root, Activation):
            activation = branch.of.root
            hidden = activation.of.root
            if not isinstance(hidden, Linear):
                raise NotUnderstood(
                    f"the activation {activation.function} is of {said(hidden)}, and not of a linear map"
                )
            return skip, branch, activation, hidden
    raise NotUnderstood(
        f"a feed-forward network was looked for in the sum {total.name!r}, "
        f"and it adds {said(total.one.root)} and {said(total.other.root)}"
    )


def _attention_of(total: Sum) -> tuple[Root, Linear, Context]:
    for skip, branch in ((total.one.root, total.other.root), (total.other.root, total.one.root)):
        if isinstance(branch, Linear) and isinstance(branch.of.root, Context):
            return skip, branch, branch.of.root
        if isinstance(branch, Context):
            raise NotUnderstood("attention has no output projection")
    raise NotUnderstood(
        f"attention was looked for in the sum {total.name!r}, "
        f"and it adds {said(total.one.root)} and {said(total.other.root)}"
    )


def _projection(view: View, heads: Array, what: str) -> Projection:
    linear = view.root
    if not isinstance(linear, Linear):
        raise NotUnderstood(f"{what} is no linear map: it is {said(linear)}")
    columns = heads.reshape(-1)
    if len(set(columns.tolist())) < len(columns):
        raise NotUnderstood(
            f"several heads share their {what}: grouped-query attention, which the specification does not know"
        )
    return Projection(linear, columns)


def said(root: Root, depth: int = 3) -> str:
    """A root as an expression, as deep as is read at a glance."""
    if depth == 0:
        return "…"

    def inner(of: Root) -> str:
        return said(of, depth - 1)

    match root:
        case Given():
            return f"the input {root.name!r}"
        case Norm():
            return f"{root.kind}({inner(root.of.root)})"
        case Linear():
            return f"linear({inner(root.of.root)})"
        case Activation():
            return f"{root.function}({inner(root.of.root)})"
        case Scores():
            return "scores of attention"
        case Weights():
            return "weights of attention"
        case Context():
            return f"attention({inner(root.value.root)})"
        case Sum():
            return f"({inner(root.one.root)} + {inner(root.other.root)})"
    return repr(root.name)
