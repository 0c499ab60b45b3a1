"""The attributes of a Keras layer in which its weights lie: its parts' own names are often a class and a number."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import keras
import numpy as np

from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.parts import walk
from encoder_conformance.spec.axes import Array

_OF_KERAS = ("_layers", "_operations", "_functional", "_input_layers", "_output_layers")
"""Attributes in which Keras keeps the parts of any layer again, without a name."""


def attributes_of(layer: Any) -> dict[int, str]:
    """The id of a weight → the path of attributes to it, `mha.wq.kernel`; of one that lies in no attribute none."""
    found: dict[int, str] = {}
    for path, part in parts_of_user(layer):
        for weight in part.weights:
            found.setdefault(id(weight), f"{path}.{weight.name}")
    return found


def not_held(layer: Any, output: Callable[[], Array]) -> tuple[str, ...]:
    """The paths of variables that its output depends on, and that Keras does not hold as weights: those of TensorFlow
    in attributes, which Keras 2 took for weights."""
    parts = [("", layer), *((f"{path}.", part) for path, part in parts_of_user(layer))]
    found = ((f"{path}{name}", value) for path, part in parts for name, value in vars(part).items())
    foreign = [(path, value) for path, value in found if _is_foreign_weight(value)]
    right = output() if foreign else None
    return tuple(path for path, value in foreign if right is not None and _is_read(value, output, right))


def _is_foreign_weight(value: Any) -> bool:
    is_variable = hasattr(value, "assign") and not isinstance(value, (keras.Variable, keras.layers.Layer))
    return is_variable and bool(getattr(value, "trainable", False)) and "float" in str(getattr(value, "dtype", ""))


def _is_read(variable: Any, output: Callable[[], Array], right: Array) -> bool:
    """Whether an output that was `right` depends on it. It is afterwards as it was."""
    before = np.array(keras.ops.convert_to_numpy(variable))
    variable.assign(np.sin(np.arange(before.size)).reshape(before.shape))
    try:
        return differ(output(), right)
    finally:
        variable.assign(before)


def never_built(layer: Any) -> tuple[str, ...]:
    """The paths of its parts that make weights at their first call and have none, since nothing calls them."""
    parts = parts_of_user(layer)
    return tuple(path for path, part in parts if not (part.built or getattr(part.build, "_is_default", False)))


def parts_of_user(layer: Any) -> Iterator[tuple[str, Any]]:
    """Path and part, of those that are the user's attributes."""
    return _parts(layer, "", {id(layer)})


def _parts(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The parts that are the user's attributes, each once, those inside of one before it. `seen`: the ids of others."""
    for name, value in vars(layer).items():
        several = isinstance(value, (list, tuple))
        for number, each in enumerate(value if several else [value]):
            if isinstance(each, keras.layers.Layer) and _is_of_user(layer, name) and id(each) not in seen:
                seen.add(id(each))
                path = f"{prefix}{name}.{number}" if several else f"{prefix}{name}"
                yield from _parts(each, f"{path}.", seen)
                yield path, each


def _is_of_user(layer: Any, name: str) -> bool:
    """Whether an attribute is one that its user named; a layer of Keras itself has private ones of its own."""
    own = type(layer).__module__.partition(".")[0] != "keras"
    return not name.startswith("_") or (own and name not in _OF_KERAS)


class KerasTree:
    """The nesting of layers: that of a model without its inputs, which are layers of Keras, too."""

    def children(self, module: Any) -> Mapping[str, Any]:
        return {each.name: each for each in module._layers if not isinstance(each, keras.layers.InputLayer)}

    def is_container(self, module: Any) -> bool:
        return isinstance(module, keras.Sequential)

    def matrices(self, module: Any) -> int:
        return sum(len(weight.shape) >= 2 for weight in module.weights)


def objects_of(layer: Any) -> Iterator[object]:
    """The layer, its parts, and the inputs of a functional model, which say what shapes it takes."""
    inputs = (each for each in layer._layers if isinstance(each, keras.layers.InputLayer))
    return chain((part for _, part in walk(KerasTree(), layer)), inputs)


def convolves(part: Any) -> bool:
    """Whether it is a convolution, and of more than one position: of one it is a linear map."""
    sizes = getattr(part, "kernel_size", ())
    return type(part).__name__.startswith("Conv") and any(size > 1 for size in sizes)
