"""Proves a map on the live module: its output is the oracle's, and stays so when each parameter is moved alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.protocol.module_description import LiveProof
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.layer.verification import exact_stages, verify
from encoder_conformance.spec.axes import BS, BSD, Array
from encoder_conformance.spec.case import causal_mask, layer_parameters
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameters_of

_MOVED = 64
"""The most parameters that are moved, evenly chosen."""
_SAME = {"float64": 1e-6, "float32": 2e-2}
"""The share of a change that may be missing or too much: roundoff, and nothing else."""
_MOST_UNUSED = 16
_STEP, _UNEVEN = 1e-9, 0.1
"""A step of x of which float32 holds nothing, and the share by which the next one may move the output otherwise."""
_NOTHING = {"float64": 1e-12, "float32": 1e-5}
"""A change of the output, relative to it, that is none."""


@dataclass
class Bench:
    """A copy of the module in one dtype, and an input without masks for it."""

    module: LiveModule
    semantics: InputSemantics
    dtype: DtypeName
    always_causal: bool
    """Whether no mask that it takes lets a position see a later one."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Step → the form that it has in place of the specification's."""

    def x(self) -> Array:
        shape = self.semantics.B, self.semantics.S, self.semantics.d_model
        return np.random.default_rng(3).normal(size=shape).astype(np.float32)

    def output(self, x: Array, *, masked: bool = False) -> Array:
        """The output [B, S, D], with masks that hide nothing where it is `masked`, or causal without any."""
        return self.semantics.batch_first(self.module.run(self.feeds(x, masked=masked))["output"])

    def feeds(self, x: Array, *, masked: bool = False) -> dict[str, Array]:
        dtype = FORMATS[self.dtype].numpy
        feeds = {"x": self.semantics.laid_out(x.astype(dtype))}
        if masked or self.semantics.causal:
            opened = self.semantics.open_masks().items()
            feeds |= {name: mask.astype(dtype) if mask.dtype.kind == "f" else mask for name, mask in opened}
        return feeds

    def allowed(self) -> Array | None:
        """The mask [S, S] of a module that is causal by itself, and takes none."""
        return causal_mask(self.semantics.S) if self.always_causal else None

    def oracle(
        self, layer: Layer, x: BSD, parameters: Mapping[str, Array], valid: BS | None = None
    ) -> dict[str, Array]:
        """The oracle's stages of the layer in float64, by name. `valid`: true at what is no padding."""
        allowed = self.allowed()
        if valid is not None:
            allowed = valid[:, None, None, :] & (True if allowed is None else allowed)
        given = LayerInputs(x.astype(np.float64), dict(parameters), allowed, valid=valid)
        return exact_stages(layer, replace(given, variants=self.variants))


def shapes_of(layer: Layer) -> dict[str, tuple[int, ...]]:
    """The specification's parameters of a layer, each with its shape."""
    return {parameter.name: parameter.shape(layer) for parameter in parameters_of(layer)}


def parameters_for(layer: Layer, absent: tuple[str, ...]) -> dict[str, Array]:
    """Portable parameters; those that the module lacks have the value that does nothing."""
    drawn = {name: value.copy() for name, value in layer_parameters(layer, {}).items()}
    for name in absent:
        drawn[name][...] = 1.0 if name.endswith("gain") else 0.0
    return drawn


def prove(
    bench: Bench, map: ElementMap, layer: Layer, absent: tuple[str, ...], inside: DtypeName | None = None
) -> LiveProof:
    """Compares the output with the oracle's, as it is and with each parameter moved alone.

    `inside`: a narrower format than that of the bench, in which it may compute.
    """
    exactness = inside or bench.dtype
    x, parameters = bench.x(), parameters_for(layer, absent)
    if map.shared():
        parameters = map.made_one(parameters)
    map.load(bench.module, parameters)
    observed = bench.output(x)
    rms, problem = _off(bench, layer, x, parameters, observed, exactness)
    names = list(map.elements)
    chosen = names[:: max(1, -(-len(names) // _MOVED))]
    right = bench.oracle(layer, x, parameters)["output"]
    compared = {}
    for name in chosen:
        moved = _moved(name, parameters, map)
        map.load(bench.module, moved)
        change = bench.output(x).astype(np.float64) - observed.astype(np.float64)
        due = bench.oracle(layer, x, moved)["output"] - right
        compared[name] = _compared(change, due, right, exactness)
    wrong, inert = (tuple(name for name in chosen if compared[name] == word) for word in ("wrong", "inert"))
    map.load(bench.module, parameters)
    return LiveProof(
        holds=not problem and not wrong and len(chosen) > len(inert),
        dtype=bench.dtype,
        rms=rms,
        moved=len(chosen),
        of=len(names),
        wrong=wrong,
        inert=inert,
        problem=problem,
    )


def _off(
    bench: Bench, layer: Layer, x: Array, parameters: Mapping[str, Array], observed: Array, exactness: DtypeName
) -> tuple[float | None, str]:
    """The rms of the output [B, S, D] in σ, where σ judges it, and how far off it is; "" where it is in line."""
    if not bench.variants:
        inputs = LayerInputs(x.astype(np.float64), dict(parameters), bench.allowed())
        [verdict] = verify(layer, inputs, {"output": observed}, FORMATS[bench.dtype].computed_in(FORMATS[exactness]))
        off = verdict.problem.text if verdict.problem else f"the output is {verdict.rms:.3g} σ off"
        return verdict.rms, "" if verdict.conforms else off
    expected = bench.oracle(layer, x, parameters)["output"]
    is_near = bool(np.allclose(observed, expected, rtol=1e-4, atol=1e-5))
    return None, "" if is_near else f"the output is off by up to {np.abs(observed - expected).max():.3g}"


def is_cast(bench: Bench, *, masked: bool = False) -> bool:
    """Whether something in a module of a wide format computes in a narrower one, whatever it computes. `masked`: beside
    masks that hide nothing, as of scores that are cast to be filled.

    In its own format twice so small a step of x moves its output twice as far. A cast swallows the step, or rounds it
    to one of its own.
    """
    rng = np.random.default_rng(5)
    shape = bench.semantics.B, bench.semantics.S, bench.semantics.d_model
    x, step = rng.normal(size=shape), rng.normal(size=shape) * _STEP
    steps = (bench.output(x + count * step, masked=masked) for count in (0, 1, 2, 0))
    before, after, twice, again = (each.astype(np.float64) for each in steps)
    if not np.array_equal(before, again):
        return False  # it draws at random
    first, second = after - before, twice - after
    return bool(np.linalg.norm(second - first) > _UNEVEN * np.linalg.norm(first))


def _moved(name: str, parameters: Mapping[str, Array], map: ElementMap) -> dict[str, Array]:
    """The parameters with this one, and those that share its elements, moved at random."""
    value = parameters[name]
    size = max(float(np.sqrt(np.mean(value**2))), 0.05)
    step = np.random.default_rng(len(name)).normal(size=value.shape) * 0.5 * size
    moved = {**parameters, name: value + step}
    return map.made_one(moved, name) if map.shared() else moved


def _compared(change: BSD, due: BSD, right: BSD, dtype: DtypeName) -> str:
    """Compares two changes of an output: `inert` if both are none, `wrong` if they differ, else `right`."""
    least = _NOTHING[dtype] * float(np.linalg.norm(right))
    observed, expected = float(np.linalg.norm(change)), float(np.linalg.norm(due))
    if observed <= least and expected <= least:
        return "inert"
    return "right" if np.linalg.norm(change - due) <= _SAME[dtype] * expected + least else "wrong"


def changing(bench: Bench, map: ElementMap) -> list[str]:
    """The own parameters that are in no map and change the output, a few of them."""
    if not (unused := map.unused()[:_MOST_UNUSED]):
        return []
    before, found = bench.module.flat().copy(), []
    try:
        right = bench.output(bench.x())
        for name in unused:
            moved = before.copy()
            moved[map.own.elements(name).reshape(-1)] += np.cos(np.arange(np.prod(map.own.shapes[name], dtype=int)))
            bench.module.assign(moved)
            if differ(right, bench.output(bench.x())):
                found.append(name)
    except ExecutionError:  # with numbers that it was not given
        return found
    finally:
        bench.module.assign(before)
    return found
