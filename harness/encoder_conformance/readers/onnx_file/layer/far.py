"""What a long sequence shows of each layer's attention: the window of a query, and the numbers added by distance."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

from encoder_conformance import Masks, Tensors
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.size import is_large
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.readers.onnx_file.layer.buckets import BucketBias, buckets_of
from encoder_conformance.readers.onnx_file.layer.layout import layout_of
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, View, Weights
from encoder_conformance.readers.onnx_file.tracing.softmax import hides
from encoder_conformance.readers.onnx_file.tracing.symbolic_trace import SymbolicTrace
from encoder_conformance.spec.axes import BSD, ST, Array, Bools

LENGTHS = (300, 66, 33, 17)
"""Beyond windows of 128 to either side, and where the last bucket of 128 begins; the first that the file takes."""
_STEEP = 100.0
"""A factor of scores beyond all that divide by a root: a softmax of it is 0 but for the largest scores."""


@dataclass(frozen=True)
class FarRun:
    """One run of the file on a drawn x [B, S, D], with masks that hide nothing, and the `values` that were wanted."""

    x: BSD
    values: Tensors

    @property
    def length(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True)
class FarChoices:
    """What a layer's attention does by distance. `window`: the keys before a query and after it that it sees. `shown`:
    whether the run shows what is seen at all."""

    window: tuple[int, int] | None
    buckets: BucketBias | None
    evidence: str
    shown: bool = True


def has_one_table(far: Sequence[FarChoices]) -> bool:
    """Whether the layers of a stack add the bias of one table, which all of them share (E-34)."""
    tables = [each.buckets.table.key() for each in far if each.buckets is not None and each.buckets.table is not None]
    return len(far) > 1 and len(tables) == len(far) and len(set(tables)) == 1


def far_run(
    graph: Graph, semantics: InputSemantics, runner: ModelRunner, names: Sequence[str], H: int, seed: int = 11
) -> FarRun:
    """The longest run that the file takes; raises ExecutionError where it takes none. `seed`: of x."""
    declared = semantics.x.shape or (None, None, None)
    batch, sequence = {"BSD": (0, 1), "SBD": (1, 0), "SD": (None, 0)}[semantics.layout]
    B = declared[batch] if batch is not None and isinstance(declared[batch], int) else 1
    fixed = declared[sequence]
    lengths = (fixed,) if isinstance(fixed, int) else LENGTHS[is_large(graph.model) :]
    tried = [(B, S) for S in lengths] + [(semantics.B, S) for S in lengths] + [(semantics.B, semantics.S)]
    for number, (B, S) in enumerate(dict.fromkeys(tried), 1):
        assert isinstance(B, int) and isinstance(S, int)
        x = np.random.default_rng(seed).normal(size=(B, S, semantics.d_model)).astype(np.dtype(semantics.x.dtype))
        try:
            feeds = mask_feeds(semantics, Masks(None, None), B, S, H)
            given = {semantics.x.name: np.ascontiguousarray(semantics.laid_out(x)), **feeds}
            return FarRun(x, {**feeds, **runner.values([semantics.output.name, *names], given)})
        except (ExecutionError, NotImplementedError):
            if number == len(set(tried)):
                raise
    raise AssertionError


def names_of(weights: Weights) -> list[str]:
    """The values of a run that show what a layer's attention does by distance."""
    shown = weights.mask if weights.of.fused_in else weights.name
    return [name for name in (shown, *weights.added) if name]


def read_far(trace: SymbolicTrace, weights: Weights, run: FarRun, again: Callable[[], FarRun]) -> FarChoices:
    """Raises UnsupportedPattern for what the layer language has no key for. `again`: a run of another x."""
    by_head = _visible(trace, weights, run, again)
    seen = None if by_head is None else np.asarray(by_head.any(0))
    window = None
    try:
        window = None if seen is None else _window(seen, weights.name)
    except UnsupportedPattern:
        if by_head is None or not _is_lost(weights, run, again):
            raise
        seen = None
    evidence = f"of {run.length} positions, by the weights {weights.name!r}"
    buckets = buckets_of(trace, weights, run.values, run.length) if weights.added else None
    return FarChoices(window, buckets, evidence, seen is not None)


def _is_lost(weights: Weights, run: FarRun, again: Callable[[], FarRun]) -> bool:
    """Whether what is 0 in attention's weights is too small for their format, and hidden by nothing: others are 0 of
    another x, and what is left comes near the smallest number that there is, or scores are multiplied by so much that
    of most keys nothing is left."""
    values, others = (each.values.get(weights.name) for each in (run, again()))
    if values is None or others is None or np.array_equal(values == 0, others == 0):
        return False
    faintest = np.sqrt(float(ml_dtypes.finfo(values.dtype).smallest_subnormal))
    return abs(weights.scale) > _STEEP or bool(values[values > 0].min(initial=1) < faintest)


def _visible(trace: SymbolicTrace, weights: Weights, run: FarRun, again: Callable[[], FarRun]) -> Bools | None:
    """Which key some item's query sees, in each head [H, S, S], or in the first where heads are computed one by one;
    None where the run does not show it. Raises UnsupportedPattern where items see other keys, as windows of an image
    do, of which none is x's alone."""
    S, values = run.length, run.values
    if weights.of.fused_in:
        return _seen_in_node(weights, values, S)[None]
    view = trace.values[weights.name]
    if not isinstance(view, View) or weights.name not in values:
        return None
    H = weights.shape[1] if view.operation.shape == weights.shape else 1
    keys, more = weights.of.appended, weights.shape[-1] - trace.S
    sizes = {"B": trace.B, "H": H, "Q": trace.S, "K": trace.S + more}
    layout = layout_of(view.index, "BHQK", sizes)
    if layout is None:
        return None
    long = {"B": len(run.x), "H": H, "Q": S, "K": S + more}
    if values[weights.name].size != prod(long.values()):  # a constant beside the scores made several items of one
        raise UnsupportedPattern(f"the weights {weights.name!r} are of more items than x is", "own_mask")
    seen = layout.stage(values[weights.name], "BHQK", tuple(long.values()), long) > 0
    seen = np.delete(seen, 0 if keys.leads else -1, axis=-1) if keys is not None else seen
    if (seen != seen[:1]).any() and not _is_lost(weights, run, again):
        raise UnsupportedPattern(f"the weights {weights.name!r} hide other keys in each item", "own_mask")
    return np.asarray(seen.any(0))


def _seen_in_node(weights: Weights, values: Mapping[str, Array], S: int) -> ST:
    apart = np.arange(S) - np.arange(S)[:, None]
    left, right = weights.near or (-1, -1)
    seen = ((-apart <= left) | (left < 0)) & ((apart <= right) | (right < 0))
    if weights.mask in values:
        given = values[weights.mask]
        open_ = given if given.dtype == np.bool_ else ~hides(given)
        seen &= np.broadcast_to(open_, (*open_.shape[:-2], S, S)).reshape(-1, S, S).any(0)
    return np.asarray(seen)


def _window(seen: ST, name: str) -> tuple[int, int] | None:
    """Keys that every query sees, or that it does not, are no window; nor is a causal mask, which masks tell of."""
    S = len(seen)
    apart = np.arange(S) - np.arange(S)[:, None]
    used = seen.any(0)
    if any((seen | ~used == pattern | ~used).all() for pattern in (apart < S, apart <= 0)):
        return None
    left, right = int(max(0, (-apart)[seen].max(initial=0))), int(max(0, apart[seen].max(initial=0)))
    band = (-apart <= left) & (apart <= right)
    if (seen | ~used == band | ~used).all() and left < S - 1 and right < S - 1:
        return left, right
    if (seen | ~used == (apart != 0) | ~used).all():
        raise UnsupportedPattern(f"{name!r} is 0 for each position's own key", "self_hidden")
    if any((seen == pattern)[:, :-1].all() for pattern in (apart > 0, apart >= 0)):
        raise UnsupportedPattern(f"{name!r} sees later keys alone: a causal mask the other way round", "own_mask")
    far = f"of {S} positions, {left} before a query at most and {right} after it"
    raise UnsupportedPattern(
        f"{name!r} sees some keys and not others, and no window is made of them: {far}", "own_mask"
    )
