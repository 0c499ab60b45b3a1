"""Choices of a layer, sizes and lists in words, for a line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from encoder_conformance.spec.layer import Layer

_MOST_NAMED = 4
"""Names in one line."""


def choices(layer: Layer) -> Iterator[str]:
    """`post-norm layer_norm ε 1e-12`, `gelu`, `scores over √head_dim`, `all biases`, and `more_choices`."""
    attention, norm = layer.attention, layer.norm
    yield f"{norm.placed} {norm.kind} ε {norm.epsilon:.6g}"
    yield layer.feed_forward.activation
    yield f"scores over √{attention.scale if isinstance(attention.scale, str) else f'{attention.scale:g}'}"
    yield _biases(layer)
    yield from more_choices(layer)


def _biases(layer: Layer) -> str:
    """`all biases`, `no biases`, or the maps that have one; and the maps that lack what their like have."""
    lacking = f" but for {' and '.join(layer.lacks_bias)}" if layer.lacks_bias else ""
    having = {
        "query, key and value": layer.attention.qkv_bias,
        "attention's output": layer.attention.output_bias,
        "feed-forward": layer.feed_forward.bias,
    }
    if len(set(having.values())) == 1:
        return f"all biases{lacking}" if layer.feed_forward.bias else "no biases"
    return f"biases in {' and '.join(name for name, has in having.items() if has)} alone{lacking}"


def more_choices(layer: Layer) -> Iterator[str]:
    """`gated`, `rope θ 10000 halves`, `window 64 before and 64 after` and so on: what a layer need not choose (clauses
    E-19 to E-32, E-41)."""
    if layer.parallel is not None:
        yield f"parallel sub-layers with {layer.parallel.replace('_', ' ')}"
    if layer.feed_forward.gated:
        yield "gated"
    yield from _of_norms(layer)
    yield from _of_attention(layer)
    if layer.layer_scale:
        yield f"layer scale of {' and '.join(layer.layer_scale)}"
    if layer.residual_scale != 1.0:
        yield f"branches times {layer.residual_scale:.6g}"


def _of_norms(layer: Layer) -> Iterator[str]:
    if not layer.norm.shift:
        yield "norms without shift"
    if not layer.norm.first:
        yield "no first norm"
    if (qk := layer.attention.qk_norm) is not None:
        yield f"{qk.kind} of query and key over {'each head' if qk.over == 'head' else 'all heads'}"


def _of_attention(layer: Layer) -> Iterator[str]:
    attention = layer.attention
    if attention.head_dim is not None:
        yield f"heads of {attention.head_dim}"
    if attention.kv_heads is not None:
        yield f"{attention.kv_heads} head{'s' * (attention.kv_heads > 1)} of key and value"
    if (rope := attention.rope) is not None:
        part = f", {rope.rotated} of {layer.head_dim} features" if rope.rotated else ""
        yield f"rope θ {rope.theta:.6g} {rope.pairing}{part}"
    if (bias := attention.position_bias) is not None:
        each = "by distance" if bias.distances == "clipped" else f"in {bias.buckets} buckets"
        yield "ALiBi" if bias.distances == "linear" else f"position bias {each} up to {bias.max_distance}"
    if attention.appended_key is not None:
        yield f"a {attention.appended_key} key beside those of positions"
    if (window := attention.window) is not None:
        yield f"window {window.left} before and {window.right} after"
    if attention.softcap is not None:
        yield f"scores capped at {attention.softcap:.6g}"


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return listed([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def in_short(paths: Iterable[str]) -> str:
    """Paths of parts in one line: `encoder.layer.1 to encoder.layer.11`, where the numbers at their ends follow each
    other."""
    runs: list[list[str]] = []
    for path in paths:
        if runs and _follows(path, runs[-1][-1]):
            runs[-1].append(path)
        else:
            runs.append([path])
    return listed([f"{run[0]} to {run[-1]}" if len(run) > 2 else listed(run) for run in runs])


def _follows(path: str, before: str) -> bool:
    (stem, _, number), (other, _, last) = path.rpartition("."), before.rpartition(".")
    return stem == other and number.isdecimal() and last.isdecimal() and int(number) == int(last) + 1


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def up_to_sizes(by_format: Mapping[str, tuple[int, int]], *, one_length: bool = False) -> str:
    """Format → the most positions and items: `up to 300 positions and 17 items in float64 and float32, and …`; with
    `one_length` no other number of positions was asked: `of 32 positions, with up to 17 items in …`."""
    by_size: dict[tuple[int, int], list[str]] = {}
    for dtype, sizes in by_format.items():
        by_size.setdefault(sizes, []).append(dtype)
    return ", and ".join(
        f"of {_count(length, 'position')}, with up to {_count(items, 'item')} in {listed(dtypes)}"
        if one_length
        else f"up to {_count(length, 'position')} and {_count(items, 'item')} in {listed(dtypes)}"
        for (length, items), dtypes in by_size.items()
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
