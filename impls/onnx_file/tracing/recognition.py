"""Gives a function of one root its name, by what it does to numbers: scale, activation, norm, softmax.

So it does not matter how a file spells a GELU or a LayerNorm: it is computed in float64 on probes, and compared.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from encoder_conformance.impls.onnx_file.tracing.activations import activation_of, probe
from encoder_conformance.impls.onnx_file.tracing.expressions import (
    Activation,
    Array,
    Fixed,
    Local,
    Norm,
    NotUnderstood,
    Root,
    Scores,
    Source,
    Unknown,
    View,
    Weights,
)
from encoder_conformance.impls.onnx_file.tracing.matrix_products import FLOATS, attributes, named
from encoder_conformance.impls.onnx_file.tracing.norms import Constant, norm_of
from encoder_conformance.impls.onnx_file.tracing.softmax import softmax_of

if TYPE_CHECKING:
    from encoder_conformance.impls.onnx_file.tracing.value_table import Known

CLOSE = 1e-5
"""Relative: float32 constants and casts inside a file, and nothing else, separate it from float64."""


def close(known: "Known", name: str, local: Local) -> View:
    """The value as a view of something named; raises NotUnderstood."""
    if local.reduced:
        raise NotUnderstood(f"{name!r} is one number for each row of {local.root.name!r}")
    root = local.root
    whole = View(root, np.arange(np.prod(root.shape)).reshape(root.shape))

    def at(values: Array) -> Array:
        """What the function should give, if it gives `values` for the root."""
        return values.reshape(-1)[local.index]

    def of(values: Array, constants: Mapping[str, Array] = {}) -> Array:
        return evaluate(known, name, root, values, constants)

    if isinstance(root, Scores) and local.rowwise:
        weights = softmax_of(of, root.shape, local)
        key = id(root), weights.scale, local.axis
        made = Weights(root.shape, name, root, weights.scale, local.axis == -1, weights.constant)
        index = local.index
        if local.axis == -2:
            Q, K = root.shape[-2:]
            index = index // (Q * K) * (Q * K) + index % K * Q + index // K % Q
        return View(known.intern(key, made), index)
    if not local.rowwise:
        values = probe(root.shape)
        seen = of(values)
        factor = scale_of(seen, at(values))
        if factor is not None:
            return View(root, local.index, factor)
        if isinstance(root, Scores | Weights):
            what = "scores" if isinstance(root, Scores) else "weights"
            raise NotUnderstood(f"attention's {what} go through something that is no scale and no mask")
        function, factor, off = activation_of(seen, at(values), name)
        made = known.intern((id(root), function), Activation(root.shape, name, whole, function, off))
        return View(made, local.index, factor)
    if isinstance(root, Weights):
        raise NotUnderstood("attention's weights are normalised once more")
    norm = norm_of(of, at, root.shape, constants_within(known, name, root))
    key = id(root), norm.kind, norm.epsilon, *(source.key() if source else b"" for source in (norm.gain, norm.shift))
    made = Norm(root.shape, name, whole, norm.kind, norm.epsilon, norm.gain, norm.shift, norm.evidence, norm.off)
    return View(known.intern(key, made), local.index)


def scale_of(seen: Array, due: Array) -> float | None:
    """The factor, where the function is one."""
    with np.errstate(all="ignore"):
        factor = float(np.vdot(seen, due) / np.vdot(due, due))
        close = np.isfinite(seen).all() and np.abs(seen - factor * due).max() <= CLOSE * abs(factor) * np.abs(due).max()
    if not close or not factor:
        return None
    return 1.0 if abs(factor - 1) < CLOSE else factor


def evaluate(known: "Known", name: str, root: Root, values: Array, constants: Mapping[str, Array]) -> Array:
    """The value of `name` where the root has these values, in float64 as far as the file lets it. `constants` are put
    in the place of the file's own."""
    found: dict[str, Array] = dict(constants)

    def number(name: str) -> Array:
        if name in found:
            return found[name]
        value = known.value(name)
        if isinstance(value, Unknown):
            raise NotUnderstood(value.reason)
        if isinstance(value, View) and value.root is root:
            result = values.reshape(-1)[value.index] * value.factor
        elif isinstance(value, Fixed):
            result = value.value
            if result.dtype in (np.float32, np.float16):
                result = result.astype(np.float64)
        else:
            node = known.graph.makers[name]
            if node.op_type in ("Cast", "Dropout", "CastLike") and name == node.output[0]:
                result = number(node.input[0])
                if node.op_type == "Cast":
                    result = cast(known, node, result)
            else:
                given = [number(given) if given else None for given in node.input]
                result = known.nodes.run(node, given)[list(node.output).index(name)]
        found[name] = result
        return result

    return number(name)


def cast(known: "Known", node, value: Array) -> Array:
    """A cast between floating-point formats stays in float64."""
    if attributes(node)["to"] in FLOATS and value.dtype.kind == "f":
        return value
    if attributes(node)["to"] in FLOATS:
        return value.astype(np.float64)
    return known.nodes.run(node, [value])[0]


def constants_within(known: "Known", name: str, root: Root) -> list[Constant]:
    """What a function takes beside its root: every floating-point constant, and each node's own epsilon."""
    found: dict[tuple[str, str], Constant] = {}
    waiting, seen = [name], set()
    while waiting:
        current = waiting.pop()
        value = known.value(current)
        if current in seen or (isinstance(value, View) and value.root is root):
            continue
        seen.add(current)
        node = known.graph.makers[current]
        if "Normalization" in node.op_type:
            epsilon = np.array(attributes(node).get("epsilon", 1e-5))
            found["", current] = Constant("", Source(epsilon, None), f"{named(node)}, attribute epsilon")
        for given in node.input:
            if given in known.values:
                waiting.append(given)
            elif given and known.number(given).dtype.kind == "f":
                held = known.source(given)
                flat = Source(held.value.reshape(-1), None if held.elements is None else held.elements.reshape(-1))
                found[given, current] = Constant(given, flat, f"constant {given!r} at {named(node)}", held.value.shape)
    return list(found.values())
