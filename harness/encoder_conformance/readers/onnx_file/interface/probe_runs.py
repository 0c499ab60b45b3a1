"""Probe runs: the sizes at which a file runs, and the influence of each position on each other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice, product
from math import prod

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner, TooLong
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.ports import Interface
from encoder_conformance.spec.axes import Array

BATCH, SEQUENCE = 3, 5
FEWER = 2
"""Items of a file that fixes a long sequence: a trace of all its values takes a gigabyte."""
LONGEST = 512
KEPT = 1 << 28
"""Bytes of outputs that a probe run keeps."""
ALL, SOME = 64, 8
"""The most places of which each is changed in turn, and how many of more are."""
MOST, MOST_BESIDE = 1 << 24, 1 << 20
"""Numbers of the largest x that is tried, and of the largest input beside it, from which the sizes of x may be computed
by convolutions: what is found among constants may be no batch at all."""


@dataclass
class ProbeRun:
    """The file at one set of sizes; equal runs are made once."""

    runner: ModelRunner
    interface: Interface
    x: Array
    shapes: dict[str, tuple[int, ...]]
    outputs: dict[bytes, Array] = field(default_factory=dict)
    """Outputs by a digest of what they were made of, as far as KEPT allows."""
    past_first: frozenset[str] = frozenset()
    """Masks that hide the first position from none, whatever they hold there."""

    @property
    def angles(self) -> Tensors:
        """The inputs by which queries and keys turn."""
        S = self.x.shape[-2]
        found = self.interface.angles.items()
        shapes = {name: self.shapes[name] for name, _ in found}
        dtypes = {port.name: port.dtype for port in self.interface.masks}
        return {
            name: each.filled(shapes[name], each.sequence_axis(shapes[name], S), dtypes[name]) for name, each in found
        }

    def output(self, masks: Tensors, x: Array | None = None) -> Array:
        """The output in float64, in the shape of x."""
        feeds = {self.interface.x.name: self.x if x is None else x, **masks}
        key = sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in feeds.values())).digest()
        if key in self.outputs:
            return self.outputs[key]
        output = self.runner.run(feeds)[self.interface.output.name].astype(np.float64)
        if (len(self.outputs) + 1) * output.nbytes <= KEPT:
            self.outputs[key] = output
        return output

    def influence(self, masks: Tensors, axis: int, places: Iterable[int] | None = None) -> Array:
        """[n, n] along one axis of x: how much the output at the second place changes with x at the first.

        The other axis stays at its first place. NaN where the output is no number; 0 in rows other than `places`, which
        are some of many where none are named. x is replaced twice, by other draws: a softmax that picks one key shows
        nothing of a small change.
        """
        n = self.x.shape[axis]
        found = np.zeros((n, n))
        for place in _some_of(n) if places is None else places:
            for change in self._changes(masks, axis, place):
                line = change if self.x.ndim == 2 else change[:, 0] if axis == 0 else change[0]
                found[place] = np.maximum(found[place], line)
        return found

    def across(self, masks: Tensors, axis: int, place: int) -> float:
        """How much the output changes, at most, at other places of the other axis, with x at this place."""
        changes = (change.swapaxes(0, axis)[:, 1:] for change in self._changes(masks, axis, place))
        return max(float(change.max(initial=0.0)) for change in changes)

    def _changes(self, masks: Tensors, axis: int, place: int) -> Iterator[Array]:
        """The change of every position, in the shape of x without features, by each draw of x at this place."""
        at = (place,) if self.x.ndim == 2 else (place, 0) if axis == 0 else (0, place)
        for draw in (1, 2):
            perturbed = self.x.copy()
            drawn = np.random.default_rng([draw, place]).normal(size=perturbed.shape[-1:])
            perturbed[at] = drawn.astype(perturbed.dtype)
            with np.errstate(invalid="ignore"):
                yield np.abs(self.output(masks, perturbed) - self.output(masks)).max(-1)


def _some_of(n: int) -> list[int]:
    """All places, or of many the first, the last, and some between."""
    return [*range(n)] if n <= ALL else [*dict.fromkeys(map(int, np.linspace(0, n - 1, SOME)))]


def first_that_runs(probes: Iterator[ProbeRun], tries: int) -> tuple[ProbeRun | None, str]:
    """The first probe that gives an output in the shape of x; else None, and the first problem."""
    problems = []
    for probe in islice(probes, tries):
        try:
            masks = probe.interface.masks
            output = probe.output({p.name: np.zeros(probe.shapes[p.name], np.dtype(p.dtype)) for p in masks})
        except TooLong as error:
            return None, str(error)
        except ExecutionError as error:
            problems.append(str(error))
            continue
        if output.shape == probe.x.shape:
            return probe, ""
        problems.append(f"the output is {list(output.shape)}, and x {list(probe.x.shape)}")
    return None, problems[0] if problems else "no size to try"


def probe_runs(runner: ModelRunner, graph: Graph, interface: Interface, least: int) -> Iterator[ProbeRun]:
    shape = interface.x.shape or (None, None, None)
    d_model = shape[-1] if isinstance(shape[-1], int) else _width(graph)
    declared = [d if isinstance(d, int) else None for d in shape[:-1]]
    for number, sizes in enumerate(_sizes(declared, graph, least)):
        if number and prod(sizes) * d_model > MOST:
            continue
        x = np.random.default_rng(0).normal(size=(*sizes, d_model)).astype(np.dtype(interface.x.dtype))
        symbols = {d: n for d, n in zip(shape, x.shape, strict=True) if isinstance(d, str)}
        choices = [list(_shapes(mask, symbols, sizes)) for mask in interface.masks]
        for place, shapes in enumerate(product(*choices)):
            if number + place and any(prod(shape) > MOST_BESIDE for shape in shapes):
                continue
            names = (mask.name for mask in interface.masks)
            yield ProbeRun(runner, interface, x, dict(zip(names, shapes, strict=True)))


def _sizes(declared: list[int | None], graph: Graph, least: int) -> Iterator[tuple[int, ...]]:
    """Batch and sequence: as declared, else usual ones, else from `least` up those among the constants of shapes."""
    items = BATCH if max(filter(None, declared), default=0) <= ALL else FEWER
    usual = [SEQUENCE] if len(declared) == 1 else [items, SEQUENCE]
    yield tuple(d or n for d, n in zip(declared, usual, strict=True))
    small = [value for value in graph.constants.values() if value.dtype == np.int64 and value.size <= 8]
    baked = sorted({int(n) for value in small for n in value.reshape(-1) if least <= n <= LONGEST})
    candidates = sorted({*usual, *baked}, key=lambda n: n if n > 1 else LONGEST)
    yield from product(*([d] if d else candidates for d in declared))


def _width(graph: Graph) -> int:
    """d_model where x does not declare it: the commonest size of constant vectors."""
    vectors = [value for value in graph.constants.values() if value.ndim == 1 and value.dtype.kind == "f"]
    sizes = [vector.size for vector in vectors if vector.size > 1]
    return max(set(sizes), key=sizes.count) if sizes else 8


def _shapes(mask: Port, symbols: dict[str, int], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every possible shape of a mask, the likeliest first."""
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
