"""Declarative, checked maps between the specification's parameters and an implementation's own, in both directions.

ParameterMap({
    "norm1.weight": Take("norm1.gain"),                                     # rename
    "linear1.weight": Take("feed_forward.hidden.weight", transpose=True),   # [in, out] to [out, in]
    "in_proj_weight": Take("attention.query.weight", "attention.key.weight", "attention.value.weight",
                           transpose=True, fuse=0),                         # three stacked along axis 0
    "q_heads": Take("attention.query.weight", shape=("d_model", "num_heads", "head_dim")),
    "gate": Take("feed_forward.hidden.weight", part=(0, 2, 1)),             # the first half along axis 1
}, around={
    "norm.weight": Take("final_norm.gain"),                                 # of a stack; "layers.0.norm1.weight" and
}, of_layer="layers.{}.")                                                   # so on are made from those above
"""

from collections.abc import Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any

import numpy as np

from encoder_conformance.adapter.masks import Array


class Take:
    """How to make one own parameter: transpose each source, concatenate, split, reshape.

    `backwards`: each source from its last row to its first, before it is transposed. `fuse` is the axis of
    concatenation. `part` is (index, count, axis) of the split. `shape` has numbers or names of sizes ("d_model",
    "num_heads", "kv_heads", "head_dim", "d_ff"). Every step is a rearrangement, so the inverse is exact. Raises
    ValueError without a source, or if `part` is given with several.

    Example: `Take("attention.query.weight", transpose=True)` of a weight [in, out] is [out, in].
    """

    def __init__(
        self,
        *sources: str,
        transpose: bool = False,
        fuse: int = 0,
        part: tuple[int, int, int] | None = None,
        shape: tuple[str | int, ...] | None = None,
        backwards: bool = False,
    ) -> None:
        if not sources or (part and len(sources) > 1):
            raise ValueError("Take needs one source, or several that are fused and not cut")
        self.sources, self.transpose, self.fuse, self.part, self.shape = sources, transpose, fuse, part, shape
        self.backwards = backwards

    def of_layer(self, prefix: str) -> "Take":
        """The `Take` for one layer of a stack, whose parameter names begin with `prefix`."""
        other = copy(self)
        other.sources = tuple(prefix + source for source in self.sources)
        return other

    def to_own(self, spec: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        """The own parameter, C-contiguous."""
        in_order = [spec[name][::-1] if self.backwards else spec[name] for name in self.sources]
        sources = [each.T if self.transpose else each for each in in_order]
        own = np.concatenate(sources, axis=self.fuse) if len(sources) > 1 else sources[0]
        if self.part:
            index, count, axis = self.part
            own = np.split(own, count, axis=axis)[index]
        if self.shape:
            own = own.reshape([sizes[size] if isinstance(size, str) else size for size in self.shape])
        return np.ascontiguousarray(own)

    def to_spec(self, own: Array, *spec_shapes: tuple[int, ...]) -> list[Array]:
        """The inverse: the sources, each of its own shape, or with `part` one piece of the source."""
        due = [list(shape[::-1] if self.transpose else shape) for shape in spec_shapes]
        if self.part:
            _, count, axis = self.part
            due[0][axis] //= count
            pieces = [own.reshape(due[0])]
        else:
            ends = np.cumsum([shape[self.fuse] for shape in due])
            whole = [*due[0]]
            whole[self.fuse] = ends[-1]
            pieces = np.split(own.reshape(whole), ends[:-1], axis=self.fuse)
        in_order = [piece.T if self.transpose else piece for piece in pieces]
        return [np.ascontiguousarray(piece[::-1] if self.backwards else piece) for piece in in_order]


class ParameterMap:
    """A map of own name → `Take`, for every own parameter that a layer may have.

    In a stack, the own names of each layer begin with `of_layer`, with the layer's number in place of {}. `around` has
    the parameters beside the layers.

    Entries for parameters that a layer does not have, such as a bias, are left out. `to_own` and `to_spec` raise
    KeyError if a parameter is missing or left over.

    Example: `ParameterMap({"fc.weight": Take("feed_forward.hidden.weight", transpose=True)})`.
    """

    def __init__(
        self, takes: Mapping[str, Take], around: Mapping[str, Take] = MappingProxyType({}), of_layer: str = "layers.{}."
    ) -> None:
        self.every, self.around, self.of_layer = dict(takes), dict(around), of_layer

    def to_own(self, spec: Mapping[str, Array], layer: Mapping[str, Any]) -> dict[str, Array]:
        """The own parameters of `layer`, C-contiguous, from the specification's."""
        entries = self._entries(spec)
        self.takes = {own: take for own, take in entries.items() if not spec.keys().isdisjoint(take.sources)}
        sources = {source for take in self.takes.values() for source in take.sources}
        _check_names("parameters of the specification", given=set(spec), expected=sources)
        sizes = _sizes(layer)
        self._shapes = {name: tensor.shape for name, tensor in spec.items()}
        return {own: take.to_own(spec, sizes) for own, take in self.takes.items()}

    def _entries(self, spec: Mapping[str, Array]) -> dict[str, Take]:
        numbers = {name.split(".")[1] for name in spec if name.startswith("layers.")}
        if not numbers:
            return self.every
        of_layers = {
            self.of_layer.format(number) + own: take.of_layer(f"layers.{number}.")
            for number in sorted(numbers, key=int)
            for own, take in self.every.items()
        }
        return {**self.around, **of_layers}

    def to_spec(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """The specification's parameters again, for the layer of the last `to_own`."""
        _check_names("parameters of the implementation", given=set(own), expected=set(self.takes))
        spec: dict[str, Array] = {}
        parts: dict[str, list[tuple[int, int, Array]]] = {}
        for name, take in self.takes.items():
            sources = take.to_spec(np.asarray(own[name]), *(self._shapes[source] for source in take.sources))
            if take.part:
                axis = 1 - take.part[2] if take.transpose else take.part[2]
                parts.setdefault(take.sources[0], []).append((take.part[0], axis, sources[0]))
            else:
                spec.update(zip(take.sources, sources, strict=True))
        for source, pieces in parts.items():
            pieces.sort(key=lambda piece: piece[0])
            spec[source] = np.concatenate([piece for _, _, piece in pieces], axis=pieces[0][1])
        return spec

    def own_names(self) -> dict[str, str]:
        """The specification's name → the own name, or several joined by ", ", for the layer of the last `to_own`."""
        own: dict[str, list[str]] = {}
        for name, take in self.takes.items():
            for source in take.sources:
                own.setdefault(source, []).append(name)
        return {source: ", ".join(names) for source, names in own.items()}

    def spec_names(self, own: Iterable[str]) -> tuple[str, ...]:
        """The specification's names of own parameters, each once, for the layer of the last `to_own`."""
        return tuple(dict.fromkeys(source for name in own for source in self.takes[name].sources))


def stack_of(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The stack in a layer description (E-14 to E-16): {} for a single layer.

    Else `layers` and `final_norm`, and with an embedding `vocabulary` and `positions`.

    Example: `Encoder(**stack_of(layer)) if stack_of(layer) else EncoderLayer()`.
    """
    embedding = layer["embedding"] or {}
    alone = layer["stack"]["layers"] == 1 and not layer["stack"]["final_norm"] and not embedding
    return {} if alone else {**layer["stack"], **embedding}


def _sizes(layer: Mapping[str, Any]) -> dict[str, int]:
    d_model, attention = layer["d_model"], layer["attention"]
    num_heads = attention["num_heads"]
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        "kv_heads": attention.get("kv_heads", num_heads),
        "head_dim": attention.get("head_dim", d_model // num_heads),
        "d_ff": layer["feed_forward"]["d_ff"],
    }


def _check_names(kind: str, *, given: set[str], expected: set[str]) -> None:
    problems = [
        f"{word}: {', '.join(sorted(names))}"
        for word, names in (("missing", expected - given), ("left over", given - expected))
        if names
    ]
    if problems:
        raise KeyError(f"{kind}, {'; '.join(problems)}")
