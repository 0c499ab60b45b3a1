"""Finds out by perturbation how x lies, and what each mask argument means: on the live module, not on an export."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, semantics_of
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics
from encoder_conformance.readers.onnx_file.interface.ports import Interface
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE, ProbeRun
from encoder_conformance.spec.axes import Array

_MOST_FORMS = 3
"""Of one mask."""
_WIDTHS = 4
"""The most values of d_model that are tried."""


def first_x(runner: LiveModule) -> Array:
    """An x that it takes, [3, 5, D] in either layout. Raises BadTarget if that fits with no D."""
    problems = []
    for d_model in _widths(runner):
        x = _x((BATCH, SEQUENCE, d_model))
        try:
            runner.run({"x": x})
        except ExecutionError as error:
            problems.append(str(error))
        else:
            return x
    if not problems:
        raise BadTarget(f"{runner.type_name} has no parameters", "an encoder layer has norms and weights")
    hint = "an encoder layer takes x [batch, sequence, d_model] and gives as much; --at names a part of a model"
    raise BadTarget(f"it takes no x [{BATCH}, {SEQUENCE}, d_model]: {problems[0]}", hint)


def live_semantics(runner: LiveModule, x: Array) -> InputSemantics:
    """The layout of x, which it takes, and who sees whom, without masks. Raises BadTarget if it takes no other."""
    try:
        return semantics_of(_probe(runner, x.shape, ()))
    except ExecutionError as error:
        raise BadTarget(f"it takes one x {list(x.shape)}, and not another: {error}") from None


def with_masks(runner: LiveModule, found: InputSemantics, num_heads: int) -> InputSemantics:
    """`found`, and the meaning of those masks that hide what they flag, in the form that can tell most.

    Forms that the module does not take together are passed over, for those that tell less.
    """
    forms = [list(_masks(runner, found, name, num_heads)) for name in runner.signature.masks]
    for masks in product(*(each for each in forms if each)):
        together = replace(found, masks=masks)
        if _runs(runner, together):
            return together
    return replace(found, masks=tuple(each[0] for each in forms if each)[:1])


def causal_with_open_masks(runner: LiveModule, found: InputSemantics) -> bool:
    """Whether no position sees a later one although masks are given that hide nothing."""
    if not (found.masks and found.causal):
        return found.causal
    x = _x(found.x_shape(found.B, found.S))
    feeds = {"x": x, **found.open_masks()}
    later = x.copy()
    later[(slice(None), -1) if found.layout == "BSD" else -1] += 1
    before, after = (found.batch_first(runner.run({**feeds, "x": each})["output"]) for each in (x, later))
    return bool(np.allclose(before[:, :-1], after[:, :-1], rtol=0, atol=1e-12))


def _runs(runner: LiveModule, found: InputSemantics) -> bool:
    try:
        output = runner.run({"x": _x(found.x_shape(found.B, found.S)), **found.open_masks()})["output"]
        return bool(np.isfinite(output).all())
    except ExecutionError:
        return False


def _x(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _probe(runner: LiveModule, shape: tuple[int, ...], masks: tuple[Port, ...]) -> ProbeRun:
    """`shape` of x, as the module takes it."""
    x, output = (Port(name=name, dtype="float32", shape=(None, None, shape[-1])) for name in ("x", "output"))
    shapes = {mask.name: tuple(size for size in mask.shape or () if isinstance(size, int)) for mask in masks}
    return ProbeRun(runner, Interface(x, output, masks), _x(shape), shapes)  # type: ignore[arg-type]


def _widths(module: LiveModule) -> list[int]:
    """The likeliest values of d_model: those of norms, then the commonest sizes."""
    sizes = Counter[int]()
    for name, shape in module.shapes.items():
        weight = 100 if "norm" in name.lower() or name.lower().startswith("ln") else 1
        sizes.update(dict.fromkeys(shape, weight))
    return [size for size, _ in sizes.most_common(_WIDTHS)]


def _masks(runner: LiveModule, found: InputSemantics, name: str, num_heads: int) -> Iterator[MaskSemantics]:
    """The argument in each form in which it hides what it flags: one of each shape."""
    taken: set[tuple[int, ...]] = set()
    for dtype, shape in _forms(found, num_heads, name):
        if shape in taken or len(taken) == _MOST_FORMS:
            continue
        port = Port(name=name, dtype=dtype, shape=shape)
        try:
            under = semantics_of(_probe(runner, found.x_shape(found.B, found.S), (port,)))
        except ExecutionError:
            continue
        [mask] = under.masks
        if mask.polarity is not None and not mask.leakage and under.layout == found.layout:
            taken.add(shape)
            yield mask


def _forms(found: InputSemantics, num_heads: int, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Dtypes and shapes of a mask, those first that can tell most; of padding, those that padding usually has."""
    B, S, H = found.B, found.S, num_heads
    shapes = [(B, H, S, S), (B * H, S, S), (B, 1, S, S), (B, S, S), (S, S), (B, 1, 1, S), (B, 1, S), (B, S)]
    if "padding" in name:
        shapes.reverse()
    yield from ((dtype, shape) for shape in dict.fromkeys(shapes) for dtype in ("bool", "float32", "int64"))
