"""Infers the layout of x and the meaning of each mask by perturbation: who changes whom, and what hides it."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.impls.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.mask_semantics import MaskSemantics, Polarity
from encoder_conformance.impls.onnx_file.interface.ports import FLOATS, Interface, numpy_dtype
from encoder_conformance.impls.onnx_file.interface.probe_runs import ProbeRun, first_that_runs, probe_runs
from encoder_conformance.spec.axes import Array
from encoder_conformance.wire.description import GraphMask, Layout, Port, Roles

HIDDEN = 1e-3
"""The influence that a hidden position may keep, relatively."""
HIDDEN_IN_PART = 0.3
"""The influence that a mask may leave to a hidden position and still count as a mask."""
SOFTMAXES = frozenset(("Softmax", "LogSoftmax", "Attention"))
TRIES, TRIES_OF_REFERENCE = 120, 12


@dataclass(frozen=True)
class InputSemantics:
    """What was seen of the inputs at batch `B` and sequence `S`. The `layout` of x is BSD, SBD or SD.

    `causal`: no position sees a later one. `isolated`: no position sees any other. Both with masks that hide nothing.
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

    def roles(self) -> Roles:
        masks = (
            GraphMask(
                name=mask.name,
                axes=mask.axes,
                meaning=mask.polarity.meaning if mask.polarity else None,
                counted=mask.counted,
            )
            for mask in self.masks
        )
        return Roles(x=self.x.name, output=self.output.name, masks=tuple(masks), layout=self.layout)

    @property
    def num_heads(self) -> int:
        """As the masks show it; 1 where none has an axis of heads."""
        for mask in self.masks:
            for letter, size in zip(mask.axes, mask.shape, strict=True):
                if letter in "HX":
                    return size if letter == "H" else size // self.B
        return 1

    def x_shape(self, B: int, S: int) -> tuple[int, ...]:
        return {"BSD": (B, S, self.d_model), "SBD": (S, B, self.d_model), "SD": (S, self.d_model)}[self.layout]

    def laid_out(self, x: Array) -> Array:
        """[B, S, D] in the file's layout; an index likewise."""
        return x if self.layout == "BSD" else x.swapaxes(0, 1) if self.layout == "SBD" else x[0]

    def batch_first(self, y: Array) -> Array:
        return y if self.layout == "BSD" else y.swapaxes(0, 1) if self.layout == "SBD" else y[None]

    def open_masks(self) -> Tensors:
        return {mask.name: mask.filled(mask.open) for mask in self.masks}


def infer_semantics(graph: Graph, interface: Interface) -> tuple[InputSemantics, ModelRunner]:
    """Raises ExecutionError where the file runs at no size, neither in ONNX Runtime nor in the reference."""
    runner = ModelRunner(graph.model)
    probe, problem = first_that_runs(probe_runs(runner, graph, interface, 2), TRIES)
    if probe is None and runner.session and not runner.ended:
        reference = runner.on_reference(problem)
        probe, other = first_that_runs(probe_runs(reference, graph, interface, 2), TRIES_OF_REFERENCE)
        if probe is not None:
            return semantics_of(probe, graph), reference
        probe, _ = first_that_runs(probe_runs(runner, graph, interface, 1), TRIES)
        problem = f"ONNX Runtime: {problem}; ONNX's reference: {other}"
    if probe is None:
        raise ExecutionError(problem)
    return semantics_of(probe, graph), runner


def _polarities(mask: Port) -> list[Polarity]:
    by_truth = [Polarity("attend", 1, 0), Polarity("ignore", 0, 1)]
    return [*by_truth, _additive(mask, -1)] if mask.dtype in FLOATS else by_truth


def _additive(mask: Port, sign: int) -> Polarity:
    return Polarity("additive", 0, sign * (6e4 if mask.dtype == "float16" else 1e9))


def semantics_of(probe: ProbeRun, graph: Graph | None = None) -> InputSemantics:
    """The semantics under which most masks hide keys. Where a `graph` is known, masks past its softmax are marked."""
    masks = probe.interface.masks
    best: tuple[float, InputSemantics] | None = None
    for polarities in product(*map(_polarities, masks)):
        found = _under(probe, polarities)
        if found and (best is None or found[0] > best[0]):
            best = found
            if found[0] == len(masks) + 1:  # every mask hides, wholly
                break
    if best is None:
        return _without_numbers(probe)
    found = best[1] if graph is None else _with_past_softmax(graph, best[1])
    return _with_flipped(probe, _with_counted(probe, found))


def _with_counted(probe: ProbeRun, found: InputSemantics) -> InputSemantics:
    """Of the masks that hide no flagged position, those whose ones are only counted are marked, and mean `attend`."""
    masks = tuple(
        replace(mask, polarity=Polarity("attend", 1, 0), counted=True)
        if mask.polarity is None and not mask.past_softmax and _is_counted(probe, found, mask)
        else mask
        for mask in found.masks
    )
    return replace(found, masks=masks)


def _is_counted(probe: ProbeRun, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether flagging any one position hides the last one, and no other."""
    S, shape, axis = found.S, mask.shape, 1 if found.layout == "BSD" else 0
    if not shape or shape[-1] != S or S < 4 or mask.dtype == "bool" or mask.dtype in FLOATS:
        return False
    feeds = {each.name: each.filled(1 if each is mask else each.open) for each in found.masks}
    seen = []
    for place in (0, S // 2):
        flagged = feeds[mask.name].copy()
        flagged[..., place] = 0
        influence = _on_others(probe.influence({**feeds, mask.name: flagged}, axis))
        if not np.isfinite(influence).all() or influence[S - 1].any() or not influence[: S - 1].any(1).all():
            return False
        seen.append(probe.output({**feeds, mask.name: flagged}))
    return bool(np.array_equal(*seen))


def _with_past_softmax(graph: Graph, found: InputSemantics) -> InputSemantics:
    """Masks that the first softmax does not depend on are marked. What they seem to hide in part, they do not hide."""
    first = next((node for node in graph.nodes if node.op_type in SOFTMAXES), None)
    if first is None:
        return found
    masks = []
    for mask in found.masks:
        past = graph.depending_on(mask.name).isdisjoint(first.output)
        seeming = past and bool(mask.leakage)  # added to the weights, where 0 changes nothing
        masks.append(replace(mask, past_softmax=past, **({"polarity": None, "fill": 0.0} if seeming else {})))
    return replace(found, masks=tuple(masks))


def _with_flipped(probe: ProbeRun, found: InputSemantics) -> InputSemantics:
    """Of the masks that hide nothing, those that hide where their numbers have the other sign are marked."""
    ports = probe.interface.masks
    if all(mask.polarity or mask.dtype not in FLOATS for mask in found.masks):
        return found
    turned = tuple(
        mask.polarity or (_additive(port, 1) if port.dtype in FLOATS else Polarity("attend", mask.fill, 0))
        for mask, port in zip(found.masks, ports, strict=True)
    )
    other = _under(probe, turned)
    if other is None:
        return found
    masks = tuple(
        replace(mask, flipped=mask.polarity is None and again.polarity is not None and mask.dtype in FLOATS)
        for mask, again in zip(found.masks, other[1].masks, strict=True)
    )
    return replace(found, masks=masks)


def _under(probe: ProbeRun, polarities: tuple[Polarity, ...]) -> tuple[float, InputSemantics] | None:
    """The semantics under these polarities and a score: one for each mask that hides, less its leakage.

    None where the output is not finite.
    """
    interface = probe.interface
    open_masks = {
        mask.name: np.full(probe.shapes[mask.name], polarity.open, numpy_dtype(mask.dtype))
        for mask, polarity in zip(interface.masks, polarities, strict=True)
    }
    *sizes, d_model = probe.x.shape
    influences = [probe.influence(open_masks, axis) for axis in range(len(sizes))]
    if not all(np.isfinite(influence).all() for influence in influences):
        return None
    mixed = [bool(_on_others(influence).any()) for influence in influences]
    layout: Layout = "SD" if len(sizes) == 1 else "SBD" if mixed[0] and not mixed[1] else "BSD"
    axis = 1 if layout == "BSD" else 0
    S, B = sizes[axis], 1 if len(sizes) == 1 else sizes[1 - axis]
    influence = influences[axis]
    on_earlier, on_later = np.tril(influence, -1), np.triu(influence, 1)
    causal = not on_earlier.any() and int((on_later > 0).sum()) > S * (S - 1) // 4 and S > 2
    found = InputSemantics(
        interface.x, interface.output, layout, B, S, d_model, (), causal, len(mixed) > 1 and all(mixed)
    )
    test = _HidingTest(probe, axis, _on_others(influence), open_masks)
    masks = tuple(test.semantics(found, *pair) for pair in zip(interface.masks, polarities, strict=True))
    isolated = not mixed[axis] and S > 1
    hiding = sum(1 - mask.leakage for mask in masks if mask.polarity is not None)
    return hiding + (not isolated), replace(found, masks=masks, isolated=isolated)


def _on_others(influence: Array) -> Array:
    """The influence of each position on the others."""
    return influence * ~np.eye(len(influence), dtype=np.bool_)


@dataclass(frozen=True)
class _HidingTest:
    """Flags positions in a mask and compares their influence with what it was. Positions are along `axis` of x."""

    probe: ProbeRun
    axis: int
    influence: Array
    open_masks: Tensors

    def semantics(self, found: InputSemantics, mask: Port, polarity: Polarity) -> MaskSemantics:
        """Whether a flagged key loses its influence on every other position, and along which axis of the mask."""
        shape = self.probe.shapes[mask.name]
        axes = _axes(shape, found.B, found.S)
        places = [int(place) for place in np.argsort(-self.influence.max(1)) if self.influence[place].any()]
        for key_axis in reversed(range(len(shape))):
            if shape[key_axis] != found.S or not places:
                continue
            leakage = 0.0
            for place in places:
                leakage = max(leakage, self.leakage(mask, polarity, key_axis, place))
                if leakage > HIDDEN_IN_PART:
                    break
            else:
                leakage = leakage if leakage > HIDDEN else 0.0
                return MaskSemantics(mask.name, mask.dtype, shape, axes, polarity, key_axis - len(shape), leakage)
        return MaskSemantics(mask.name, mask.dtype, shape, axes, None, fill=polarity.open)

    def leakage(self, mask: Port, polarity: Polarity, key_axis: int, place: int) -> float:
        """The largest share of its influence that a flagged place keeps on any other."""
        flagged = self.open_masks[mask.name].copy()
        flagged[(slice(None),) * key_axis + (place,)] = polarity.shut
        left = _on_others(self.probe.influence({**self.open_masks, mask.name: flagged}, self.axis, [place]))[place]
        if not np.isfinite(left).all():
            return np.inf
        with np.errstate(all="ignore"):
            return float(np.max(left / self.influence[place], where=left > 0, initial=0.0))


def _axes(shape: tuple[int, ...], B: int, S: int) -> str:
    axes = "".join("1" if n == 1 else "S" if n == S else "B" if n == B else "X" for n in shape)
    if len(shape) == 4 and axes[1] != "1":
        axes = axes[0] + "H" + axes[2:]
    if len(shape) == 2 and (B in (1, S)) and shape[0] == B:
        axes = "BS"
    return axes


def _without_numbers(probe: ProbeRun) -> InputSemantics:
    """The semantics of a file whose output is never finite."""
    interface = probe.interface
    *sizes, d_model = probe.x.shape
    layout: Layout = "SD" if len(sizes) == 1 else "BSD"
    B, S = (1, *sizes)[-2:]
    shapes = {mask.name: probe.shapes[mask.name] for mask in interface.masks}
    masks = tuple(
        MaskSemantics(m.name, m.dtype, shapes[m.name], "X" * len(shapes[m.name]), None) for m in interface.masks
    )
    return InputSemantics(interface.x, interface.output, layout, B, S, d_model, masks, isolated=True)
