"""The number of heads of a module whose graph does not tell: what its attributes say, and what depends on what."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.proving import Bench, parameters_for, shapes_of
from encoder_conformance.readers.module_target.searching import candidate_maps
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer

_SAID = (
    *("num_heads", "nhead", "nheads", "n_heads", "n_head", "num_head", "num_attention_heads", "n_attention_heads"),
    *("nr_heads", "nb_heads", "no_heads", "num_of_heads", "number_of_heads", "head_count", "heads_num"),
)
_PERHAPS_SAID = (*_SAID, "head_num", "heads", "h", "H")
_CONFIGURATIONS = ("config", "cfg", "args", "hparams")
_SIZE_SAID = ("head_dim", "dim_head", "d_head", "head_size", "attention_head_size", "d_kv")
_NO_CHANGE = {"float64": 1e-12, "float32": 1e-6}
"""A change of the output, relative to it, that is none."""


@dataclass(frozen=True)
class HeadCounts:
    """The numbers of heads that a module may have, the likeliest first. `known`: whether that one is no guess."""

    numbers: tuple[int, ...]
    known: bool

    def of(self, layer: Layer) -> list[Layer]:
        """The layer with each of them that its other choices allow, as heads of keys do that so many share."""
        return [made for number in self.numbers if (made := _with_heads(layer, number)) is not None]


def head_counts(bench: Bench, layer: Layer) -> HeadCounts:
    """What attributes say, then what channels depend on, then the layer's own number and all others that fit."""
    divisors = [number for number in range(1, layer.d_model + 1) if layer.d_model % number == 0]
    said = [number for number in _attributes(bench.module, _PERHAPS_SAID) if number in divisors]
    seen = _seen(bench, layer, divisors)
    likely = [*said, *([seen] if seen else [])]
    return HeadCounts(tuple(dict.fromkeys((*likely, layer.attention.num_heads, *divisors))), bool(likely))


@dataclass(frozen=True)
class HeadsSaid:
    """The numbers of heads, and of features of one, that attributes may say, the first said first."""

    numbers: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


NOTHING_SAID = HeadsSaid()


def heads_said(module: LiveModule) -> HeadsSaid:
    """What a module's attributes may say of its heads."""
    names = (_PERHAPS_SAID, _SIZE_SAID)
    return HeadsSaid(*(tuple(dict.fromkeys(_attributes(module, each))) for each in names))


def denied(module: LiveModule, num_heads: int) -> int | None:
    """The number that its attributes say, where none of them says this one."""
    said = list(_attributes(module, _SAID))
    return said[0] if said and num_heads not in said else None


def _attributes(module: LiveModule, names: Iterable[str]) -> Iterator[int]:
    """Of the module, of its parts, and of the configurations that these keep."""
    parts = list(module.objects())
    kept = (getattr(part, name, None) for part in parts for name in _CONFIGURATIONS)
    values = (getattr(each, name, None) for each in (*parts, *kept) for name in names)
    return (value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _with_heads(layer: Layer, num_heads: int) -> Layer | None:
    """None where that contradicts another of its choices."""
    attention = layer.attention.model_copy(update={"num_heads": num_heads})
    try:
        made = Layer.model_validate_json(json.dumps(layer.model_copy(update={"attention": attention}).model_dump()))
    except ValidationError:
        return None
    return made.model_copy(update={"norm": layer.norm})  # whose epsilon may be a decimal


def _seen(bench: Bench, layer: Layer, divisors: list[int]) -> int | None:
    """The number of heads by what the first channel of the context depends on: the query's and the key's channels of
    its own head, whatever is done to the scores. None if that tells nothing: all channels, heads of keys that
    several of queries share, or no map fits by names.
    """
    own = OwnParameters(bench.module.shapes)
    elements = next(candidate_maps(own, layer), None)
    if elements is None:
        return None
    before = bench.module.flat().copy()
    try:
        first = _FirstChannel.of(bench, layer, ElementMap(own, elements))
        channel = np.arange(first.channels)
        if any(first.parameters[name].shape[1] != first.channels for name in first.parts):
            return None
        for number in sorted(divisors, reverse=True)[:-1]:
            if first.is_alone_with(channel < layer.d_model // number) or first.is_alone_with(channel % number == 0):
                return number
    except ExecutionError:
        return None
    finally:
        bench.module.assign(before)
    return None


@dataclass(frozen=True)
class _FirstChannel:
    """The first channel of the context: the output projection passes this alone.

    Channels of query, key and value, the `parts`, are changed together: it does not matter which of them is which.
    """

    bench: Bench
    map: ElementMap
    parameters: dict[str, Array]
    parts: tuple[str, ...]

    @classmethod
    def of(cls, bench: Bench, layer: Layer, map: ElementMap) -> "_FirstChannel":
        names = shapes_of(layer)
        parameters = parameters_for(layer, tuple(name for name in names if name not in map.elements))
        output = next(name for name in reversed(names) if name.endswith("attention.output.weight"))
        parameters[output][1:] = 0
        parts = tuple(output.replace("output.weight", f"{part}.weight") for part in ("query", "key", "value"))
        return cls(bench, map, parameters, parts)

    @property
    def channels(self) -> int:
        return int(self.parameters[self.parts[0]].shape[1])

    def is_alone_with(self, channels: Array) -> bool:
        """Whether no other than these channels, [P] of bool, reaches it."""
        right = self._output(np.zeros_like(channels))
        change = np.abs(self._output(~channels) - right).max()
        return bool(change <= _NO_CHANGE[self.bench.dtype] * np.abs(right).max())

    def _output(self, changed: Array) -> Array:
        """The output [B, S, D] with noise in these channels, [P] of bool, of all parts."""
        moved = dict(self.parameters)
        for name in self.parts:
            value = self.parameters[name]
            moved[name] = value + np.sin(np.arange(value.size)).reshape(value.shape) * changed
        self.map.load(self.bench.module, moved)
        return self.bench.output(self.bench.x()).astype(np.float64)
