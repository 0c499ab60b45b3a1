"""Finds the stages that submodules show: those whose input or output is, to the bit of a float, the oracle's stage."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import Seen
from encoder_conformance.readers.module_target.proving import Bench
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import LAST_AXIS_IS_KEYS, kind_of, step_of

_SCORES = "attention_scores"
_ITEMS, _POSITIONS, _FEW_POSITIONS = 17, 128, 40
"""The most items, and positions, of which a check asks stages; a layer of more features has fewer positions."""
_CLOSE = {"float64": 1e-9, "float32": 1e-4}
_LESS = 2, 1, 3, 1, 4
"""Positions of padding of five items, whose order by length is another, and not its own inverse."""


@dataclass(frozen=True)
class Place:
    """The place where a stage is seen: a tensor of a submodule's output, or of its input. `swapped`: sequence first."""

    module: str
    side: str
    index: int
    swapped: bool

    @property
    def key(self) -> tuple[str, str, int]:
        """Under which a call that is watched shows its tensor."""
        return self.module, self.side, self.index

    def of(self, values: Array, shape: tuple[int, ...]) -> Array:
        """The stage [*shape] out of the values of a module."""
        turned = values.swapaxes(0, 1) if self.swapped else values
        return np.ascontiguousarray(turned).reshape(shape)


def locate(
    bench: Bench, layer: Layer, parameters: Mapping[str, Array], lengths: Sequence[int] = ()
) -> dict[str, Place]:
    """Stage → where it is seen. The module has these parameters. `lengths`: the numbers of positions that it takes;
    (): any."""
    x = bench.x()
    stages = bench.oracle(layer, x, parameters)
    try:
        seen, _ = bench.module.watched(bench.feeds(x))
    except Exception:  # as what cannot be called where gradients are asked: that is said where they are
        return {}
    places = {stage: _place_of(value, seen, bench) for stage, value in stages.items() if stage != "output"}
    found = {stage: place for stage, place in places.items() if place}
    found = {stage: found[stage] for stage in _of_any_size(found, seen, bench, lengths)}
    everywhere = Counter(map(kind_of, stages))  # a layer that shows fewer stages than another answers wrong names
    shown = Counter(map(kind_of, found))
    biased = _with_a_bias(bench, layer, [place for stage, place in found.items() if kind_of(stage) == _SCORES])
    whole = {kind for kind, count in shown.items() if count == everywhere[kind]} - ({_SCORES} if biased else set())
    return {stage: place for stage, place in found.items() if kind_of(stage) in whole}


def _of_any_size(found: Mapping[str, Place], seen: Seen, bench: Bench, lengths: Sequence[int]) -> Iterator[str]:
    """The stages that are seen whole in other calls too, of many items and of one position: what goes through a
    submodule in chunks is seen in part, and another way may go without it."""
    small, shown = bench.semantics, frozenset(place.module for place in found.values())
    most = small.d_model if small.d_model <= _POSITIONS else _FEW_POSITIONS
    least = min(lengths, default=1)
    many = max((each for each in lengths if each <= most), default=least) if lengths else most
    sizes = (_ITEMS, many), (small.B, least)
    calls: list[tuple[InputSemantics, Seen]] = []
    for items, length in sizes if found else ():
        there = replace(bench, semantics=small.at_length(length))
        if not small.causal:  # whose masks are of so many items
            there = replace(there, semantics=replace(there.semantics, B=items))
        with suppress(Exception):  # whatever it raises at a size that it does not take, and is not asked at
            calls.append((there.semantics, there.module.watched(there.feeds(there.x()), shown)[0]))
    for stage, place in found.items():
        key, axes = place.key, 1 + (step_of(stage) in LAST_AXIS_IS_KEYS)
        size = seen[key].size / (small.B * small.S**axes)
        if all(key in other and other[key].size == size * at.B * at.S**axes for at, other in calls):
            yield stage


def _with_a_bias(bench: Bench, layer: Layer, places: Collection[Place]) -> bool:
    """Whether a bias that is given changes what is seen at these places: scores are shown without it (M-7)."""
    semantics, heads = bench.semantics, layer.attention.num_heads
    masks = [mask for mask in semantics.masks if mask.polarity and mask.polarity.meaning == "additive"]
    if not places or not any({"H", "Q", "K"} <= {*mask.letters} for mask in masks):
        return False
    x = bench.x().astype(FORMATS[bench.dtype].numpy)
    bias = np.random.default_rng(5).normal(size=(1, heads, semantics.S, semantics.S)).astype(x.dtype)
    given = Masks(None, None, bias=bias, sequence=semantics.S)
    plain, _ = bench.module.watched(bench.feeds(x))
    biased, _ = bench.module.watched(module_feeds(semantics, x, given, heads, always_causal=bench.always_causal))
    keys = {place.key for place in places}
    return any(not np.allclose(plain[key], biased[key], rtol=_CLOSE[bench.dtype]) for key in keys)


def padding_moves_rows(
    bench: Bench, layer: Layer, parameters: Mapping[str, Array], places: Mapping[str, Place]
) -> bool:
    """Whether what is seen at these places has other rows, or rows in another order, or is not there, once padding is
    hidden: items are sorted by their lengths inside, or padding is left out. The module has these parameters."""
    lengths = np.array([max(1, bench.semantics.S - less) for less in _LESS])
    right = np.arange(bench.semantics.S) < lengths[:, None]
    drawn = (right,) if any(mask.counted for mask in bench.semantics.masks) else (right, right[:, ::-1])
    return any(_moves_rows(bench, layer, parameters, places, valid) for valid in drawn)


def _moves_rows(
    bench: Bench, layer: Layer, parameters: Mapping[str, Array], places: Mapping[str, Place], valid: Array
) -> bool:
    """The same for items [B, S] whose positions are `valid`."""
    S, heads = bench.semantics.S, layer.attention.num_heads
    masks = Masks(valid[:, None, None, :], None, sequence=S)
    x = np.random.default_rng(7).normal(size=(len(_LESS), S, bench.semantics.d_model)).astype(np.float32)
    given = x.astype(FORMATS[bench.dtype].numpy)
    try:
        feeds = module_feeds(bench.semantics, given, masks, heads, always_causal=bench.always_causal)
        seen, _ = bench.module.watched(feeds, frozenset(place.module for place in places.values()))
    except (ExecutionError, NotImplementedError):
        return False  # no mask can say it
    stages = bench.oracle(layer, x, parameters, valid)
    if not seen.keys() >= {place.key for place in places.values()}:
        return True  # what hides padding goes another way
    shown = ((place, seen[place.key], stages[stage]) for stage, place in places.items())
    return any(_has_other_rows(place, values, stage, valid, _CLOSE[bench.dtype]) for place, values, stage in shown)


def _has_other_rows(place: Place, values: Array, stage: Array, valid: Array, close: float) -> bool:
    """Whether all rows of the stage [B, S, …] that are `valid` [B, S] are there, and not each in its place. Of scores
    and weights of attention [B, H, S, T], their size alone is compared."""
    if values.size != stage.size:
        return True
    if stage.ndim != 3:
        return False
    due = stage[valid]
    turned = place.of(values, stage.shape).astype(np.float64)
    near = close * max(1.0, float(np.abs(stage).max()))
    if np.abs(turned[valid] - due).max() <= near:
        return False
    rows = turned.reshape(-1, stage.shape[-1])
    return all(bool((np.abs(rows - row).max(-1) <= near).any()) for row in due)


def _place_of(stage: Array, seen: Seen, bench: Bench) -> Place | None:
    for (name, side, index), value in seen.items():
        for swapped in (False, True):
            if swapped:
                fits = stage.ndim == 3 and value.shape[:2] == (bench.semantics.S, bench.semantics.B)
            else:
                fits = value.shape == stage.shape or value.ndim == 2
            if not fits or value.ndim < 2 or value.size != stage.size:
                continue
            place = Place(name, side, index, swapped)
            turned = place.of(value, stage.shape).astype(np.float64)
            if np.abs(turned - stage).max() <= _CLOSE[bench.dtype] * max(1.0, float(np.abs(stage).max())):
                return place
    return None
