"""What each mask means and how x lies, told from what the file does: whose change reaches whom, what cuts it off."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from encoder_conformance.impls.onnx_file.graph.execution import Array, Failed, Runner, Tensors
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.ports import FLOATS, Interface, Port, numpy_dtype
from encoder_conformance.impls.onnx_file.interface.probe_runs import Trial, first_that_runs, trials

CUT = 1e-3
"""Of what a change does to another position, what is left where the mask hides it."""
LEAKS = 0.3
"""The same of a mask that hides in part; what leaves more is no mask."""
TRIES, TRIES_OF_REFERENCE = 120, 12


@dataclass(frozen=True)
class Meaning:
    """`open` is what hides nothing, `shut` what hides a key."""

    name: str
    open: float
    shut: float


ATTEND, IGNORE = Meaning("attend", 1, 0), Meaning("ignore", 0, 1)
ADDITIVE = Meaning("additive", 0, -1e9)


@dataclass(frozen=True)
class MaskRole:
    """`key_axis` is the axis that counts keys. `axes` has a letter for each: B, H, S or 1; X for what is none of them.
    `meaning` None: flagging a position changes nothing that could be told. `left` is what is left of what a hidden
    position does to the others, relatively."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: str
    meaning: Meaning | None
    key_axis: int = -1
    left: float = 0.0

    def filled(self, value: float, shape: tuple[int, ...] | None = None) -> Array:
        return np.full(self.shape if shape is None else shape, value, numpy_dtype(self.dtype))


@dataclass(frozen=True)
class Roles:
    """At batch `B` and sequence `S`, at which all of it was tried out. `layout` of x is BSD, SBD or SD."""

    x: Port
    output: Port
    layout: str
    B: int
    S: int
    d_model: int
    masks: tuple[MaskRole, ...]
    causal: bool = False
    """Whether no position sees a later one, with masks that hide nothing."""
    across_batch: bool = False
    apart: bool = False
    """No position sees any other."""

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
        """[B, S, D] as the file takes it; an index likewise."""
        return x if self.layout == "BSD" else x.swapaxes(0, 1) if self.layout == "SBD" else x[0]

    def batch_first(self, y: Array) -> Array:
        return y if self.layout == "BSD" else y.swapaxes(0, 1) if self.layout == "SBD" else y[None]

    def open_masks(self) -> Tensors:
        return {mask.name: mask.filled(mask.meaning.open if mask.meaning else 0) for mask in self.masks}


def roles(graph: Graph, of: Interface) -> tuple[Roles, Runner]:
    """Raises Failed, where the file runs at no size that could be thought of, in ONNX Runtime or the reference."""
    runner = Runner(graph.model)
    found, problem = first_that_runs(trials(runner, graph, of, 2), TRIES)
    if found is None and runner.session:
        reference = runner.refer(problem)
        found, other = first_that_runs(trials(reference, graph, of, 2), TRIES_OF_REFERENCE)
        if found is not None:
            return _told(found), reference
        found, _ = first_that_runs(trials(runner, graph, of, 1), TRIES)
        problem = f"ONNX Runtime: {problem}; ONNX's reference: {other}"
    if found is None:
        raise Failed(problem)
    return _told(found), runner


def _meanings(mask: Port) -> list[Meaning]:
    if mask.dtype not in FLOATS:
        return [ATTEND, IGNORE]
    lowest = -6e4 if mask.dtype == "float16" else -1e9
    return [ATTEND, IGNORE, replace(ADDITIVE, shut=lowest)]


def _told(trial: Trial) -> Roles:
    """What the trial's file does with x, and with each mask."""
    best: tuple[float, Roles] | None = None
    for meanings in product(*(_meanings(mask) for mask in trial.of.masks)):
        found = _under(trial, meanings)
        if found and (best is None or found[0] > best[0]):
            best = found
            if found[0] == len(trial.of.masks) + 1:  # every mask does what was thought
                break
    if best is None:  # no number comes out whatever the masks hold
        best = 0, _apart(trial)
    return best[1]


def _under(trial: Trial, meanings: tuple[Meaning, ...]) -> tuple[float, Roles] | None:
    """The roles if the masks mean that, and how many of them do, one that hides in part counting less; None where that
    gives no numbers."""
    open_ = {
        mask.name: np.full(trial.shapes[mask.name], meaning.open, numpy_dtype(mask.dtype))
        for mask, meaning in zip(trial.of.masks, meanings, strict=True)
    }
    *sizes, d_model = trial.x.shape
    along = [trial.reach(open_, axis) for axis in range(len(sizes))]
    if not all(np.isfinite(reach).all() for reach in along):
        return None
    mixed = [bool(_others(reach).any()) for reach in along]
    layout, axis = "SD", 0
    if len(sizes) == 2:
        layout, axis = ("SBD", 0) if mixed[0] and not mixed[1] else ("BSD", 1)
    S, B = sizes[axis], 1 if len(sizes) == 1 else sizes[1 - axis]
    reach = along[axis]
    later, earlier = np.tril(reach, -1), np.triu(reach, 1)  # what a place does to those before it, and after it
    causal = not later.any() and int((earlier > 0).sum()) > S * (S - 1) // 4 and S > 2
    found = Roles(trial.of.x, trial.of.output, layout, B, S, d_model, (), causal, all(mixed) and len(mixed) > 1)
    masks = tuple(
        _role(trial, found, axis, reach, mask, meaning, open_)
        for mask, meaning in zip(trial.of.masks, meanings, strict=True)
    )
    apart = not mixed[axis] and S > 1
    cutting = sum(1 - mask.left for mask in masks if mask.meaning is not None)
    return cutting + (not apart), replace(found, masks=masks, apart=apart)


def _others(reach: Array) -> Array:
    """What a place does to others than itself."""
    return reach * ~np.eye(len(reach), dtype=np.bool_)


def _role(
    trial: Trial, found: Roles, axis: int, reach: Array, mask: Port, meaning: Meaning, open_: Tensors
) -> MaskRole:
    """Whether flagging a key in this mask cuts it off from every other position, and along which axis of the mask."""
    shape = trial.shapes[mask.name]
    letters = "".join("1" if n == 1 else "S" if n == found.S else "B" if n == found.B else "X" for n in shape)
    if len(shape) == 4 and letters[1] != "1":
        letters = letters[0] + "H" + letters[2:]
    if len(shape) == 2 and (found.B == found.S or found.B == 1) and shape[0] == found.B:
        letters = "BS"
    reached = _others(reach)
    hidden = [int(place) for place in np.argsort(-reached.max(1)) if reached[place].any()]
    for key_axis in reversed(range(len(shape))):
        if shape[key_axis] != found.S or not hidden:
            continue
        left = 0.0
        for place in hidden:
            left = max(left, _left(trial, axis, reached, mask, meaning, open_, key_axis, place))
            if left > LEAKS:
                break
        else:
            showing = left if left > CUT else 0.0
            return MaskRole(mask.name, mask.dtype, shape, letters, meaning, key_axis - len(shape), showing)
    return MaskRole(mask.name, mask.dtype, shape, letters, None)


def _left(
    trial: Trial, axis: int, reached: Array, mask: Port, meaning: Meaning, open_: Tensors, key_axis: int, place: int
) -> float:
    """How much is left of what a place does to the others, once it is flagged; relatively, of the worst."""
    flagged = open_[mask.name].copy()
    flagged[(slice(None),) * key_axis + (place,)] = meaning.shut
    left = _others(trial.reach({**open_, mask.name: flagged}, axis, [place]))[place]
    if not np.isfinite(left).all():
        return np.inf
    with np.errstate(all="ignore"):
        return float(np.max(left / reached[place], where=left > 0, initial=0.0))


def _apart(trial: Trial) -> Roles:
    *sizes, d_model = trial.x.shape
    layout, (B, S) = ("SD", (1, sizes[0])) if len(sizes) == 1 else ("BSD", (sizes[0], sizes[1]))
    masks = tuple(
        MaskRole(m.name, m.dtype, trial.shapes[m.name], "X" * len(trial.shapes[m.name]), None) for m in trial.of.masks
    )
    return Roles(trial.of.x, trial.of.output, layout, B, S, d_model, masks, apart=True)
