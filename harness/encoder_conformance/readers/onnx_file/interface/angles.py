"""Inputs that say by what angles queries and keys turn: positions, angles, or cosines and sines of angles.

Such an input is given as rotary positions have it (E-22). Whether a file takes a number for each feature or for each
pair, no name says: the ways are tried, and the one of which a layer is read is the file's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import onnx

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import inputs_of, takers_of
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES, PRODUCTS
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, INTEGERS, Interface
from encoder_conformance.spec.axes import Array

Kind = Literal["places", "angles", "cos", "sin", "cos and sin", "sin and cos"]
Spread = Literal["once", "halves", "interleaved"]
SPREADS: tuple[Spread, ...] = ("once", "halves", "interleaved")
"""A number for each pair; or for each feature, where the pairs are halves, or neighbours."""
THETA = 1e4
"""The base of the frequencies where no layer is stated: who calls the file gives the angles."""
_PASSED = MOVES | IDENTITIES | {"Neg"}
_ROTARY = "RotaryEmbedding"


@dataclass(frozen=True)
class AngleInput:
    """What an input holds of the positions 0, 1, 2 …: themselves (`places`), angles, or cosines and sines, which one
    input may have side by side."""

    kind: Kind
    spread: Spread = "once"
    theta: float = THETA

    def filled(self, shape: tuple[int, ...], axis: int, dtype: str) -> Array:
        """The input; positions are along `axis`."""
        at = np.arange(shape[axis], dtype=np.float64)
        if self.kind == "places":
            return _along(at, shape, [axis], dtype)
        parts = {"cos and sin": (np.cos, np.sin), "sin and cos": (np.sin, np.cos), "cos": (np.cos,), "sin": (np.sin,)}
        functions = parts.get(self.kind, (np.asarray,))
        width = shape[-1] // len(functions)
        pairs = width if self.spread == "once" else width // 2
        angles = at[:, None] * self.theta ** (-np.arange(pairs) / max(pairs, 1))
        spread = np.tile(angles, 2) if self.spread == "halves" else angles
        spread = np.repeat(angles, 2, -1) if self.spread == "interleaved" else spread
        return _along(np.concatenate([of(spread) for of in functions], -1), shape, [axis, len(shape) - 1], dtype)

    def axes(self, shape: tuple[int, ...], B: int, S: int) -> str:
        """The letters of its axes, by their sizes at batch B and sequence S: one S, B, 1, and X for any other."""
        along = self.sequence_axis(shape, S)
        last = len(shape) if self.kind == "places" else len(shape) - 1
        letters = ("B" if size == B > 1 else "1" if size == 1 else "X" for size in shape)
        return "".join("S" if axis == along else "X" if axis == last else each for axis, each in enumerate(letters))

    def sequence_axis(self, shape: tuple[int, ...], S: int) -> int:
        """The axis of positions: the last for `places`, else the last of this size before that of the angles."""
        found = [axis for axis, size in enumerate(shape[:-1]) if size == S]
        return len(shape) - 1 if self.kind == "places" else found[-1] if found else 0

    def fits(self, size: int | str | None) -> bool:
        """Whether a last axis of this size has room for it."""
        several = (len(self.kind.split(" and "))) * (1 if self.spread == "once" else 2)
        return self.kind == "places" or (isinstance(size, int) and size >= several and size % several == 0)


def _along(values: Array, shape: tuple[int, ...], axes: list[int], dtype: str) -> Array:
    """`values`, as many as `axes` of `shape` have, along these axes, and the same along the others: [*shape]."""
    sizes = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    return np.broadcast_to(values.reshape(sizes).astype(np.dtype(dtype)), shape).copy()


def ways_of_angles(graph: Graph, interface: Interface) -> Iterator[Interface]:
    """The interface with its positions, and with each way in which its angles may be given; the likeliest first."""
    places = {
        port.name: AngleInput("places")
        for port in interface.masks
        if port.dtype in INTEGERS and _is_position(graph, port.name, interface.output.name)
    }
    tables = angle_tables(graph, [port for port in interface.masks if port.dtype in FLOATS])
    kinds: list[Sequence[Kind]] = [tuple(of) for of in _kinds(tables)] or [()]
    for spread, of in product(SPREADS if tables else ("once",), kinds):
        found = {port.name: AngleInput(kind, spread) for (port, _), kind in zip(tables, of, strict=True)}
        if all(found[port.name].fits(port.shape[-1] if port.shape else None) for port, _ in tables):
            yield replace(interface, angles={**places, **found})


def names_of_angles(interface: Interface) -> list[str]:
    """The inputs that hold angles, and not the positions themselves."""
    return [name for name, each in interface.angles.items() if each.kind != "places"]


def said_of_angles(interface: Interface) -> tuple[str, str] | None:
    """A note on the angles that whoever calls the file gives."""
    given = {name: interface.angles[name] for name in names_of_angles(interface)}
    if not given:
        return None
    what = " and ".join(f"{name!r} ({each.kind} {_SPREAD[each.spread]})" for name, each in given.items())
    message = f"the angles are inputs, {what}: no theta is in the file, and {THETA:g} stands for it"
    return message, "whoever calls it makes them: --layer says with which theta, and the file is asked with that"


_SPREAD: Mapping[Spread, str] = {
    "once": "of each pair",
    "halves": "of each feature, pairs in halves",
    "interleaved": "of each feature, pairs of neighbours",
}


def _kinds(tables: Sequence[tuple[Port, bool]]) -> Iterator[Sequence[Kind]]:
    """What the inputs may be: by their names where these say it, else in both orders."""
    angles = [port for port, is_angle in tables if is_angle]
    if angles:
        if len(angles) == len(tables):
            yield ["angles"] * len(angles)
        return
    named = [_named(port.name) for port, _ in tables]
    if tables and all(named):
        yield [kind for kind in named if kind]
    elif len(tables) == 1:
        together: tuple[Kind, Kind] = ("sin and cos", "cos and sin")
        yield from ([each] for each in together)
    elif tables and len(tables) % 2 == 0:
        order: tuple[Kind, Kind] = ("cos", "sin")
        yield [order[number % 2] for number in range(len(tables))]
        yield [order[1 - number % 2] for number in range(len(tables))]


def _named(name: str) -> Kind | None:
    said = name.lower().replace("sinusoid", "").replace("cosine", "cos").replace("sine", "sin")
    cos, sin = "cos" in said, "sin" in said.replace("using", "").replace("single", "")
    return None if cos == sin else "cos" if cos else "sin"


def angle_tables(graph: Graph, ports: Sequence[Port]) -> list[tuple[Port, bool]]:
    """Those of the floating-point inputs that hold angles, and whether as such: all that is made of one is cosines and
    sines, or factors of what a linear map gives."""
    takers, found = takers_of(graph.nodes), []
    for port in ports:
        if port.shape is not None and len(port.shape) >= 2 and isinstance(port.shape[-1], int):
            ends = _ends(port.name, takers)
            if ends and all(node.op_type in ("Cos", "Sin") for node, _ in ends):
                found.append((port, True))
            elif ends and port.shape[-1] > 1 and all(_turns(graph, *end) for end in ends):
                found.append((port, False))
    return found


def _ends(name: str, takers: Mapping[str, list[onnx.NodeProto]]) -> list[tuple[onnx.NodeProto, str]]:
    """The nodes that take an input as a number, past those that rearrange it, and the value that they take."""
    waiting, found, seen = [name], [], set()
    while waiting:
        value = waiting.pop()
        for node in takers.get(value, []):
            if node.op_type not in _PASSED:
                found.append((node, value))
            elif node.output[0] not in seen:
                seen.update(node.output)
                waiting += node.output
    return found


def _turns(graph: Graph, node: onnx.NodeProto, value: str) -> bool:
    """Whether a node turns what a linear map gives by this value."""
    if node.op_type == _ROTARY:
        return bool(value != node.input[0])
    others = [name for name in node.input if name != value]
    if node.op_type != "Mul" or len(others) != 1:
        return False
    made = (graph.producers[name] for name in graph.needed_by(others) if name in graph.producers)
    return any(each.op_type in PRODUCTS for each in made)


def _is_position(graph: Graph, name: str, output: str) -> bool:
    """Whether an input reaches the output by angles alone: by a cosine and a sine, or by rows of a table of such."""
    if output not in graph.depending_on(name):  # its sizes alone are used
        return False
    found, turns = {name}, False
    for node in graph.nodes:
        if node.op_type in ("Shape", "Size") or found.isdisjoint(inputs_of(node)):
            continue
        is_angle = node.op_type in ("Cos", "Sin", _ROTARY)
        if is_angle or (graph.table_of(node) is not None and graph.origin(node.input[1]) == name):
            turns = True
        else:
            found.update(node.output)
    return turns and output not in found
