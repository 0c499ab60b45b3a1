"""A file tried out: the sizes at which it may run, and whose change reaches whom at one of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, product

import numpy as np

from encoder_conformance.impls.onnx_file.graph.execution import Array, Failed, Runner, Tensors
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.ports import Interface, Port, numpy_dtype

BATCH, SEQUENCE = 3, 5
LONGEST_TRIED = 512


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


def first_that_runs(trials: Iterator[Trial], tries: int) -> tuple[Trial | None, str]:
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


def trials(runner: Runner, graph: Graph, of: Interface, least: int) -> Iterator[Trial]:
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
