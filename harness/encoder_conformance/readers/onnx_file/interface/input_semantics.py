"""Infers the layout of x and the meaning of each mask by perturbation: who changes whom, and what hides it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.description import Port, Roles
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.mask_semantics import (
    ATTEND,
    MaskSemantics,
    Polarity,
    additive,
    axes_at,
    polarities_of,
)
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, Interface
from encoder_conformance.readers.onnx_file.interface.probe_runs import ProbeRun, first_that_runs, probe_runs
from encoder_conformance.spec.axes import Array

HIDDEN = 1e-3
"""The influence that a hidden position may keep, relatively."""
HIDDEN_IN_PART = 0.3
"""The influence that a mask may leave to a hidden position and still count as a mask."""
ACROSS = 3.0
"""Weighed its influence on other items, up to which a position's influence in its own may have come the same way."""
ROUNDED = 1e-5
"""Of the output's largest number: no more than another order of the same sums, as of rows that an expert of a mixture
takes together, which are of all items."""
_ALIKE = 10
"""How many times one rounding may be another."""
SOFTMAXES = frozenset(("Softmax", "LogSoftmax", "Attention"))
TRIES, TRIES_OF_REFERENCE = 120, 12
TRIES_BESIDE = 24
"""Where an input beside x gives sizes alone: they are computed, and hardly any others fit."""


@dataclass(frozen=True)
class InputSemantics:
    """The inputs as they were seen at batch `B` and sequence `S`. The `layout` of x is BSD, SBD or SD.

    `causal`: no position sees a later one. `isolated`: no position sees any other. Both with masks that hide nothing.
    Not `has_numbers`: its output is never finite, and nothing else is known.
    """

    x: Port
    output: Port
    layout: Layout
    B: int
    S: int
    d_model: int
    masks: tuple[MaskSemantics, ...]
    causal: bool = False
    across_batch: bool = False
    isolated: bool = False
    has_numbers: bool = True

    def roles(self) -> Roles:
        masks = tuple(mask.as_input() for mask in self.masks)
        return Roles(x=self.x.name, output=self.output.name, masks=masks, layout=self.layout)

    @property
    def num_heads(self) -> int:
        """The heads that the masks show; 1 where none has an axis of them."""
        for mask in self.masks:
            for letter, size in zip(mask.axes, mask.shape, strict=True):
                if letter in "HX":
                    return size if letter == "H" else size // self.B
        return 1

    @property
    def hiding(self) -> float:
        """The number of masks that hide keys, each less its leakage, and one more where positions see each other."""
        hiding = sum(1 - mask.leakage for mask in self.masks if mask.polarity is not None)
        return hiding + (not self.isolated)

    def x_shape(self, B: int, S: int) -> tuple[int, ...]:
        return {"BSD": (B, S, self.d_model), "SBD": (S, B, self.d_model), "SD": (S, self.d_model)}[self.layout]

    def laid_out(self, x: Array) -> Array:
        """x [B, S, D], or its index, in the file's layout."""
        return x if self.layout == "BSD" else x.swapaxes(0, 1) if self.layout == "SBD" else x[0]

    def batch_first(self, y: Array) -> Array:
        """A value in the file's layout as [B, S, D]."""
        return y if self.layout == "BSD" else y.swapaxes(0, 1) if self.layout == "SBD" else y[None]

    def at_length(self, S: int) -> "InputSemantics":
        """The same of S positions, its masks too."""
        sizes = ((mask, zip(mask.axes, mask.shape, strict=True)) for mask in self.masks)
        masks = (replace(mask, shape=tuple(S if axis == "S" else n for axis, n in each)) for mask, each in sizes)
        return replace(self, S=S, masks=tuple(masks))

    def turned_by(self, theta: float) -> "InputSemantics":
        """Its angles with frequencies of this base."""
        masks = (
            mask if mask.turning is None else replace(mask, turning=replace(mask.turning, theta=theta))
            for mask in self.masks
        )
        return replace(self, masks=tuple(masks))

    def open_masks(self) -> Tensors:
        return {mask.name: mask.filled(mask.open) for mask in self.masks}


def infer_semantics(graph: Graph, interface: Interface) -> tuple[InputSemantics, ModelRunner]:
    """Raises ExecutionError where the file runs at no size, neither in ONNX Runtime nor in the reference."""
    runner = ModelRunner(graph.model)
    unread = _unread(interface, graph)
    beside = any(port.name in unread and port.dtype in FLOATS for port in interface.masks)
    tries = TRIES_BESIDE if beside else TRIES
    probe, problem = first_that_runs(probe_runs(runner, graph, interface, 2), tries)
    if probe is None and runner.session and not runner.ended:
        reference = runner.on_reference(problem)
        probe, other = first_that_runs(probe_runs(reference, graph, interface, 2), TRIES_OF_REFERENCE)
        if probe is not None:
            return semantics_of(probe, graph), reference
        probe, _ = first_that_runs(probe_runs(runner, graph, interface, 1), tries)
        problem = f"ONNX Runtime: {problem}; ONNX's reference: {other}"
    if probe is None:
        raise ExecutionError(problem)
    return semantics_of(probe, graph), runner


def semantics_of(probe: ProbeRun, graph: Graph | None = None) -> InputSemantics:
    """The semantics under which most masks hide keys. Where a `graph` is known, masks past its softmax are marked."""
    masks = probe.interface.masks
    best: InputSemantics | None = None
    turned = probe.interface.angles
    once = (_unread(probe.interface, graph) if graph is not None else set()) | {*turned}
    for polarities in product(*(polarities_of(mask.dtype)[: 1 if mask.name in once else None] for mask in masks)):
        found = _under(probe, polarities)
        if found is not None and (best is None or found.hiding > best.hiding):
            best = found
            if best.hiding == len(masks) - len(once) + 1:  # every mask hides, wholly
                break
    if best is None:
        return _without_numbers(probe)
    if graph is not None:
        best = _mark_past_softmax(graph, best)
    return _mark_flipped(probe, _mark_counted(probe, best), once)


def _unread(interface: Interface, graph: Graph) -> set[str]:
    """The inputs beside x of which the output takes no number: their sizes at most."""
    names = (port.name for port in interface.masks)
    return {name for name in names if interface.output.name not in graph.depending_on(name)}


def _under(probe: ProbeRun, polarities: tuple[Polarity, ...]) -> InputSemantics | None:
    """The semantics under these polarities; None where the output is not finite."""
    ports, (*sizes, _) = probe.interface.masks, probe.x.shape
    open_masks = {
        port.name: np.full(probe.shapes[port.name], polarity.open, np.dtype(port.dtype))
        for port, polarity in zip(ports, polarities, strict=True)
    } | probe.angles
    influences = [probe.influence(open_masks, axis) for axis in range(len(sizes))]
    if not all(np.isfinite(influence).all() for influence in influences):
        return None
    mixed = _mixed(influences, ROUNDED * float(np.abs(probe.output(open_masks)).max()))
    layout: Layout = "SD" if len(sizes) == 1 else "SBD" if mixed[0] and not mixed[1] else "BSD"
    axis = 1 if layout == "BSD" else 0
    influence = influences[axis]
    found = replace(
        _bare(probe, layout),
        causal=_is_causal(influence),
        across_batch=len(mixed) > 1 and all(mixed),
        isolated=not mixed[axis] and sizes[axis] > 1,
    )
    flagging = _Flagging(probe, axis, _on_others(influence), open_masks, found)
    return replace(found, masks=tuple(map(flagging.semantics, ports, polarities)))


def _bare(probe: ProbeRun, layout: Layout) -> InputSemantics:
    """The semantics of x alone, in this layout."""
    *sizes, d_model = probe.x.shape
    S, B = (sizes[0], 1) if layout == "SD" else sizes if layout == "SBD" else sizes[::-1]
    return InputSemantics(probe.interface.x, probe.interface.output, layout, B, S, d_model, ())


def _without_numbers(probe: ProbeRun) -> InputSemantics:
    """The semantics of a file whose output is never finite."""
    bare = _bare(probe, "SD" if probe.x.ndim == 2 else "BSD")
    shapes = [(port, probe.shapes[port.name]) for port in probe.interface.masks]
    masks = (MaskSemantics(port.name, port.dtype, shape, "X" * len(shape), None) for port, shape in shapes)
    return replace(bare, masks=tuple(masks), isolated=True, has_numbers=False)


def _on_others(influence: Array) -> Array:
    """The influence [S, S] of each position on the others. Its own may be NaN: it has no key where a causal mask shows
    it itself alone, and another hides it."""
    return np.where(np.eye(len(influence), dtype=np.bool_), 0.0, influence)


def _mixed(influences: list[Array], rounded: float) -> list[bool]:
    """Along which axes places change each other. Where they do along several, what is rounding is none beside more; and
    is none where it is alike along all, as of rows that are summed in groups of other sizes, those of experts."""
    most = [float(_on_others(influence).max(initial=0.0)) for influence in influences]
    least = rounded if max(most) > rounded else _ALIKE * min(most) if len(most) > 1 else 0.0
    return [each > least for each in most]


def _is_causal(influence: Array) -> bool:
    """Whether positions change later ones, and none an earlier one: by their influence [S, S], from and to. A row
    without any is of a position that was not changed."""
    S = len(influence)
    on_earlier, on_later = np.tril(influence, -1), np.triu(influence, 1)
    later = sum(S - 1 - place for place in range(S) if influence[place].any())
    return not on_earlier.any() and int((on_later > 0).sum()) > later // 2 and S > 2


@dataclass(frozen=True)
class _Flagging:
    """Flags positions in a mask, and compares their influence [S, S] on others with what it was under open masks.

    Positions are along `axis` of x, whose sizes `found` has.
    """

    probe: ProbeRun
    axis: int
    influence: Array
    open_masks: Tensors
    found: InputSemantics

    def semantics(self, port: Port, polarity: Polarity) -> MaskSemantics:
        """Whether a flagged key loses its influence on every other position, and along which axis of the mask."""
        shape = self.probe.shapes[port.name]
        axes = axes_at(shape, self.found.B, self.found.S)
        if (turning := self.probe.interface.angles.get(port.name)) is not None:
            axes = turning.axes(shape, self.found.B, self.found.S)
            return MaskSemantics(port.name, port.dtype, shape, axes, None, turning=turning)
        past_first = port.name in self.probe.past_first
        places = [int(place) for place in np.argsort(-self.influence.max(1)) if self.influence[place].any()]
        places = [place for place in places if place or not past_first]
        for key_axis in reversed(range(len(shape))):
            if shape[key_axis] != self.found.S or not places:
                continue
            leakage = self.leakage(port, polarity, key_axis, places)
            if leakage <= HIDDEN_IN_PART:
                leakage = leakage if leakage > HIDDEN else 0.0
                found = MaskSemantics(port.name, port.dtype, shape, axes, polarity, key_axis - len(shape), leakage)
                return replace(found, past_first=past_first)
        return MaskSemantics(port.name, port.dtype, shape, axes, None, fill=polarity.open)

    def leakage(self, port: Port, polarity: Polarity, key_axis: int, places: list[int]) -> float:
        """The largest share of its influence that one of these places, flagged, keeps on any other; or the first share
        that is more than a mask may leave."""
        largest = 0.0
        for place in places:
            flagged = self.open_masks[port.name].copy()
            flagged[(slice(None),) * key_axis + (place,)] = polarity.shut
            masks = {**self.open_masks, port.name: flagged}
            left = _on_others(self.probe.influence(masks, self.axis, [place]))[place]
            if not np.isfinite(left).all():
                return np.inf
            left, whole = self._within_its_item(left, masks, place)
            with np.errstate(all="ignore"):
                largest = float(np.max(left / whole, where=left > 0, initial=largest))
            if largest > HIDDEN_IN_PART:
                break
        return largest

    def _within_its_item(self, left: Array, masks: Tensors, place: int) -> tuple[Array, Array]:
        """The influence that is `left` and the whole one, [S] each, without what reaches other items as well.

        What goes from item to item, as by one scale for the batch, reaches hidden positions too: no mask can help it.
        """
        whole = self.influence[place]
        if not self.found.across_batch:
            return left, whole
        hidden, seen = (self.probe.across(each, self.axis, place) for each in (masks, self.open_masks))
        own = np.maximum(whole - ACROSS * seen, 0.0)
        return (np.maximum(left - ACROSS * hidden, 0.0), own) if own.any() else (left, whole)


def _mark_past_softmax(graph: Graph, found: InputSemantics) -> InputSemantics:
    """Marks masks that the first softmax does not depend on. What they seem to hide in part, they do not hide."""
    first = next((node for node in graph.nodes if node.op_type in SOFTMAXES), None)
    if first is None:
        return found
    masks = []
    for mask in found.masks:
        past = mask.turning is None and graph.depending_on(mask.name).isdisjoint(first.output)
        seeming = past and mask.leakage  # it is added to the weights, where 0 changes nothing
        masks.append(replace(replace(mask, polarity=None, fill=0.0) if seeming else mask, past_softmax=past))
    return replace(found, masks=tuple(masks))


def _mark_counted(probe: ProbeRun, found: InputSemantics) -> InputSemantics:
    """Marks, of the masks that hide no flagged position, those whose ones are only counted: they mean `attend`."""
    masks = tuple(
        replace(mask, polarity=ATTEND, counted=True)
        if mask.polarity is None and not mask.past_softmax and mask.turning is None and _is_counted(probe, found, mask)
        else mask
        for mask in found.masks
    )
    return replace(found, masks=masks)


def _is_counted(probe: ProbeRun, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether flagging any one position hides the last one, and no other: not where nothing flagged hides it too, as
    where any mask stands for a causal one."""
    S, axis = found.S, 1 if found.layout == "BSD" else 0
    if mask.shape[-1:] != (S,) or S < 4 or mask.dtype == "bool" or mask.dtype in FLOATS:
        return False
    feeds = {each.name: each.filled(1 if each is mask else each.open) for each in found.masks}
    if not _on_others(probe.influence(feeds, axis))[S - 1].any():
        return False
    outputs = []
    for place in (0, S // 2):
        flagged = feeds[mask.name].copy()
        flagged[..., place] = 0
        influence = _on_others(probe.influence({**feeds, mask.name: flagged}, axis))
        if not np.isfinite(influence).all() or influence[S - 1].any() or not influence[: S - 1].any(1).all():
            return False
        outputs.append(probe.output({**feeds, mask.name: flagged}))
    return np.array_equal(outputs[0], outputs[1])


def _hides_a_key(mask: MaskSemantics) -> bool:
    """Wholly, and where keys are: a large number takes scores away by rounding, too, and in a softmax over the queries
    the weights of all others."""
    return mask.polarity is not None and not mask.leakage and mask.key_axis == -1


def _mark_flipped(probe: ProbeRun, found: InputSemantics, known: Collection[str]) -> InputSemantics:
    """Marks, of the masks that hide nothing, those that hide where their numbers have the other sign. Of `known` ones
    that is not asked: they are no masks."""
    if all(mask.polarity or mask.name in known or mask.dtype not in FLOATS for mask in found.masks):
        return found
    turned = tuple(
        mask.polarity or (additive(mask.dtype, +1) if mask.dtype in FLOATS else Polarity("attend", mask.fill, 0))
        for mask in found.masks
    )
    other = _under(probe, turned)
    if other is None:
        return found
    masks = tuple(
        replace(mask, flipped=mask.polarity is None and _hides_a_key(again) and mask.dtype in FLOATS)
        for mask, again in zip(found.masks, other.masks, strict=True)
    )
    return replace(found, masks=masks)
