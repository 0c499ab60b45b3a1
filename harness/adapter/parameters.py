"""Declarative maps from the specification's parameters to an implementation's own, both ways, checked.

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

Array = np.ndarray[Any, Any]


class Take:
    """How one own parameter is made: each source transposed, then joined, then cut, then reshaped.

    `part` is (index, count, axis); `shape` names sizes of the layer ("d_model", "num_heads", "head_dim", "d_ff")
    or gives numbers. Every step is a rearrangement, so that the way back is exact.
    """

    def __init__(
        self,
        *sources: str,
        transpose: bool = False,
        fuse: int = 0,
        part: tuple[int, int, int] | None = None,
        shape: tuple[str | int, ...] | None = None,
    ) -> None:
        if not sources or (part and len(sources) > 1):
            raise ValueError("Take needs one source, or several that are fused and not cut")
        self.sources, self.transpose, self.fuse, self.part, self.shape = sources, transpose, fuse, part, shape

    def of_layer(self, prefix: str) -> "Take":
        """The same of a layer of a stack: `prefix` is what the names of its parameters begin with."""
        other = copy(self)
        other.sources = tuple(prefix + source for source in self.sources)
        return other

    def to_own(self, spec: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        taken = [spec[name].T if self.transpose else spec[name] for name in self.sources]
        own = np.concatenate(taken, axis=self.fuse) if len(taken) > 1 else taken[0]
        if self.part:
            index, count, axis = self.part
            own = np.split(own, count, axis=axis)[index]
        return np.ascontiguousarray(own.reshape(_resolved(self.shape, sizes)) if self.shape else own)

    def to_spec(self, own: Array, spec_shape: tuple[int, ...]) -> list[Array]:
        """The sources again, or the one piece of the source that a `part` holds; sources share `spec_shape`."""
        turned = spec_shape[::-1] if self.transpose else spec_shape
        if self.part:
            _, count, axis = self.part
            cut = list(turned)
            cut[axis] //= count
            pieces = [own.reshape(cut)]
        else:
            joined = list(turned)
            joined[self.fuse] *= len(self.sources)
            pieces = np.split(own.reshape(joined), len(self.sources), axis=self.fuse)
        return [np.ascontiguousarray(piece.T if self.transpose else piece) for piece in pieces]


class ParameterMap:
    """Own name → `Take`, for every parameter that a layer may have.

    In a stack each layer has these under `of_layer`, with its number in place of {}, and beside them there is `around`.

    Those that this layer does not have (a bias, say) are left out. Every parameter that it has must be taken, and every
    own parameter made: anything else raises KeyError.
    """

    def __init__(
        self, takes: Mapping[str, Take], around: Mapping[str, Take] = MappingProxyType({}), of_layer: str = "layers.{}."
    ) -> None:
        self.every, self.around, self.of_layer = dict(takes), dict(around), of_layer

    def to_own(self, spec: Mapping[str, Array], layer: Mapping[str, Any]) -> dict[str, Array]:
        self.takes = {own: take for own, take in self._every(spec).items() if not spec.keys().isdisjoint(take.sources)}
        needed = {source for take in self.takes.values() for source in take.sources}
        _same_names("parameters of the specification", given=set(spec), expected=needed)
        sizes = _sizes(layer)
        self._shapes = {name: tensor.shape for name, tensor in spec.items()}
        return {own: take.to_own(spec, sizes) for own, take in self.takes.items()}

    def _every(self, spec: Mapping[str, Array]) -> dict[str, Take]:
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
        """The way back, for the layer that `to_own` was last called with."""
        _same_names("parameters of the implementation", given=set(own), expected=set(self.takes))
        spec: dict[str, Array] = {}
        parts: dict[str, list[tuple[int, int, Array]]] = {}
        for name, take in self.takes.items():
            pieces = take.to_spec(np.asarray(own[name]), self._shapes[take.sources[0]])
            if take.part:
                axis = 1 - take.part[2] if take.transpose else take.part[2]
                parts.setdefault(take.sources[0], []).append((take.part[0], axis, pieces[0]))
            else:
                spec.update(zip(take.sources, pieces, strict=True))
        for source, held in parts.items():
            held.sort(key=lambda piece: piece[0])
            spec[source] = np.concatenate([piece for _, _, piece in held], axis=held[0][1])
        return spec

    def own_names(self) -> dict[str, str]:
        """The specification's name → the own one, or ones, that hold it, for the layer that `to_own` last saw."""
        own: dict[str, list[str]] = {}
        for name, take in self.takes.items():
            for source in take.sources:
                own.setdefault(source, []).append(name)
        return {source: ", ".join(names) for source, names in own.items()}

    def spec_names(self, own: Iterable[str]) -> tuple[str, ...]:
        """The specification's names of own parameters, for the layer that `to_own` was last called with."""
        return tuple(dict.fromkeys(source for name in own for source in self.takes[name].sources))


def _sizes(layer: Mapping[str, Any]) -> dict[str, int]:
    d_model, num_heads = layer["d_model"], layer["attention"]["num_heads"]
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        "head_dim": d_model // num_heads,
        "d_ff": layer["feed_forward"]["d_ff"],
    }


def _resolved(shape: tuple[str | int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[size] if isinstance(size, str) else size for size in shape)


def _same_names(what: str, *, given: set[str], expected: set[str]) -> None:
    wrong = [
        f"{word}: {', '.join(sorted(names))}"
        for word, names in (("missing", expected - given), ("left over", given - expected))
        if names
    ]
    if wrong:
        raise KeyError(f"{what}, {'; '.join(wrong)}")
