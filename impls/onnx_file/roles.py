"""What each mask means and how x lies, told from what the file does: whose change reaches whom, what cuts it off."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, product

import numpy as np

from impls.onnx_file.graph import Graph
from impls.onnx_file.interface import FLOATS, Interface, Port
from impls.onnx_file.running import Array, Failed, Runner, Tensors

BATCH, SEQUENCE = 3, 5
CUT = 1e-3
"""Of what a change does to another position, what is left where the mask hides it."""
LONGEST_TRIED = 512
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
    `meaning` None: flagging a position changes nothing that could be told."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: str
    meaning: Meaning | None
    key_axis: int = -1

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


def numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


@dataclass
class Trial:
    """The file at one set of sizes."""

    runner: Runner
    of: Interface
    x: Array
    shapes: dict[str, tuple[int, ...]]
    answers: dict[bytes, Array] = field(default_factory=dict)

    def output(self, masks: Tensors, x: Array | None = None) -> Array:
        feeds = {self.of.x.name: self.x if x is None else x, **masks}
        key = b"".join(np.ascontiguousarray(v).tobytes() for v in feeds.values())
        if key not in self.answers:
            self.answers[key] = self.runner.run(feeds)[self.of.output.name].astype(np.float64)
        return self.answers[key]

    def reach(self, masks: Tensors, axis: int, hidden: Iterable[int] | None = None) -> Array:
        """[n, n] along one axis of x, at the first place of the other: by how much the output at the second place
        changes where x is another at the first; NaN where it is no number, 0 in the rows that are not asked for.

        x is put for another altogether, twice: a softmax that picks one key shows nothing to a small change.
        """
        n = self.x.shape[axis]
        found = np.zeros((n, n))
        for place in range(n) if hidden is None else hidden:
            at = (place,) if self.x.ndim == 2 else (place, 0) if axis == 0 else (0, place)
            for draw in (1, 2):
                moved = self.x.copy()
                moved[at] = np.random.default_rng([draw, place]).normal(size=moved.shape[-1]).astype(moved.dtype)
                with np.errstate(invalid="ignore"):
                    changed = np.abs(self.output(masks, moved) - self.output(masks)).max(-1)
                line = changed if self.x.ndim == 2 else changed[:, 0] if axis == 0 else changed[0]
                found[place] = np.maximum(found[place], line)
        return found


def roles(graph: Graph, of: Interface) -> tuple[Roles, Runner]:
    """Raises Failed, where the file runs at no size that could be thought of, in ONNX Runtime or the reference."""
    runner = Runner(graph.model)
    found, problem = _first_that_runs(_trials(runner, graph, of, 2), TRIES)
    if found is None and runner.session:
        reference = Runner(graph.model)
        reference.refer(problem)
        found, other = _first_that_runs(_trials(reference, graph, of, 2), TRIES_OF_REFERENCE)
        if found is not None:
            return _told(found), reference
        found, _ = _first_that_runs(_trials(runner, graph, of, 1), TRIES)
        problem = f"ONNX Runtime: {problem}; ONNX's reference: {other}"
    if found is None:
        raise Failed(problem)
    return _told(found), runner


def _first_that_runs(trials: Iterator["Trial"], tries: int) -> tuple["Trial | None", str]:
    """The first trial that gives an output in the shape of x; else None, and what the first said."""
    problems = []
    for trial in islice(trials, tries):
        try:
            output = trial.output(
                {p.name: np.zeros(trial.shapes[p.name], numpy_dtype(p.dtype)) for p in trial.of.masks}
            )
        except Failed as error:
            problems.append(str(error))
            continue
        if output.shape == trial.x.shape:
            return trial, ""
        problems.append(f"the output is {list(output.shape)}, and x {list(trial.x.shape)}")
    return None, problems[0] if problems else "no size to try"


def _trials(runner: Runner, graph: Graph, of: Interface, least: int) -> Iterator[Trial]:
    shape = of.x.shape or (None, None, None)
    d_model = shape[-1] if isinstance(shape[-1], int) else _width(graph)
    declared = [d if isinstance(d, int) else None for d in shape[:-1]]
    for sizes in _sizes(declared, graph, least):
        x = np.random.default_rng(0).normal(size=(*sizes, d_model)).astype(numpy_dtype(of.x.dtype))
        symbols = {d: n for d, n in zip(shape, x.shape, strict=True) if isinstance(d, str)}
        choices = [list(_shapes(mask, symbols, sizes)) for mask in of.masks]
        for shapes in product(*choices):
            yield Trial(runner, of, x, dict(zip((mask.name for mask in of.masks), shapes, strict=True)))


def _sizes(declared: list[int | None], graph: Graph, least: int) -> Iterator[tuple[int, ...]]:
    """Batch and sequence: as declared, else the usual, else what stands among the constants that shapes are made of,
    and is no less than `least`."""
    usual = [SEQUENCE] if len(declared) == 1 else [BATCH, SEQUENCE]
    yield tuple(d or n for d, n in zip(declared, usual, strict=True))
    baked = sorted(
        {
            int(n)
            for value in graph.constants.values()
            if value.dtype == np.int64 and value.size <= 8
            for n in value.reshape(-1)
            if least <= n <= LONGEST_TRIED
        }
    )
    yield from product(
        *([d] if d else sorted({*usual, *baked}, key=lambda n: n if n > 1 else LONGEST_TRIED) for d in declared)
    )


def _width(graph: Graph) -> int:
    """d_model where x does not say: the commonest size of the vectors among the constants."""
    sizes = [
        value.size
        for value in graph.constants.values()
        if value.ndim == 1 and value.dtype.kind == "f" and value.size > 1
    ]
    return max(set(sizes), key=sizes.count) if sizes else 8


def _shapes(mask: Port, symbols: dict[str, int], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every shape that a mask may have, the likeliest first."""
    B, S = (1, *sizes)[-2:]
    usual = {1: (S,), 2: (B, S), 3: (B, S, S), 4: (B, 1, S, S)}
    shape = mask.shape if mask.shape is not None else (None,) * 2
    options = []
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            options.append([size])
        elif size in symbols:
            options.append([symbols[size]])
        else:
            likely = usual.get(len(shape), (B,) * len(shape))[axis]
            options.append(list(dict.fromkeys((likely, S, B, 1))))
    yield from product(*options)


def _meanings(mask: Port) -> list[Meaning]:
    if mask.dtype not in FLOATS:
        return [ATTEND, IGNORE]
    lowest = -6e4 if mask.dtype == "float16" else -1e9
    return [ATTEND, IGNORE, replace(ADDITIVE, shut=lowest)]


def _told(trial: Trial) -> Roles:
    """What the trial's file does with x, and with each mask."""
    best: tuple[int, Roles] | None = None
    for meanings in product(*(_meanings(mask) for mask in trial.of.masks)):
        found = _under(trial, meanings)
        if found and (best is None or found[0] > best[0]):
            best = found
            if found[0] > len(trial.of.masks):  # every mask does what was thought
                break
    if best is None:  # no number comes out whatever the masks hold
        best = 0, _apart(trial)
    return best[1]


def _under(trial: Trial, meanings: tuple[Meaning, ...]) -> tuple[int, Roles] | None:
    """The roles if the masks mean that, and how many of them do; None where that gives no numbers."""
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
    cutting = sum(mask.meaning is not None for mask in masks)
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
        if (
            shape[key_axis] == found.S
            and hidden
            and all(_cut(trial, axis, reached, mask, meaning, open_, key_axis, place) for place in hidden)
        ):
            return MaskRole(mask.name, mask.dtype, shape, letters, meaning, key_axis - len(shape))
    return MaskRole(mask.name, mask.dtype, shape, letters, None)


def _cut(
    trial: Trial, axis: int, reached: Array, mask: Port, meaning: Meaning, open_: Tensors, key_axis: int, place: int
) -> bool:
    """Whether nothing is left of what a place does to the others, once it is flagged."""
    flagged = open_[mask.name].copy()
    flagged[(slice(None),) * key_axis + (place,)] = meaning.shut
    left = _others(trial.reach({**open_, mask.name: flagged}, axis, [place]))[place]
    return bool(np.isfinite(left).all() and (left <= CUT * reached[place]).all())


def _apart(trial: Trial) -> Roles:
    *sizes, d_model = trial.x.shape
    layout, (B, S) = ("SD", (1, sizes[0])) if len(sizes) == 1 else ("BSD", (sizes[0], sizes[1]))
    masks = tuple(
        MaskRole(m.name, m.dtype, trial.shapes[m.name], "X" * len(trial.shapes[m.name]), None) for m in trial.of.masks
    )
    return Roles(trial.of.x, trial.of.output, layout, B, S, d_model, masks, apart=True)
