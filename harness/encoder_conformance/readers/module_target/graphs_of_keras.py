"""A function that makes a graph of Keras of its input, as Keras' own examples write an encoder: what it is given, and
the model of what it makes."""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from encoder_conformance.readers.module_target.callables import names_of
from encoder_conformance.readers.onnx_file.interface.probe_runs import SEQUENCE

_NAMES = re.compile(r"x|(\w+_)?inp(ut)?s?(_\w+)?|\w*tensor|embedded\w*|encoded\w*|tokens")
"""Names of what such a function is called with."""
_INITIALIZERS = re.compile(r"(kernel_|weights?_)?initializer")
_OF_KERAS = "keras", "tensorflow"
_OF_ANY_LENGTH, _OF_ONE_LENGTH = "keras.Input((None, ", "keras.Input((32, "
"""What its input begins with, as source: of any number of positions, or of the number that a graph is made for."""


def symbolic_x(found: Any, name: str, d_model: str) -> str:
    """The source of what a function of a file that uses Keras is given for this argument; "" where it is no input of a
    graph."""
    if not (inspect.isfunction(found) and "keras" in sys.modules and _NAMES.fullmatch(name)):
        return ""
    modules = (each.__name__ if inspect.ismodule(each) else _module_of(each) for each in names_of(found).values())
    uses_keras = any(each.partition(".")[0] in _OF_KERAS for each in modules)
    return f"{_OF_ANY_LENGTH}{d_model}))" if uses_keras else ""


def initializer_of(found: Any, name: str) -> str:
    """The source of what a layer of Keras is given for an argument that begins its weights; "" for another argument."""
    keras = sys.modules.get("keras")
    of_keras = keras is not None and inspect.isclass(found) and issubclass(found, keras.layers.Layer)
    return "'glorot_uniform'" if of_keras and _INITIALIZERS.fullmatch(name) else ""


def _module_of(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "")


def of_each_length(arguments: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The arguments, and, where one is an input of a graph of any length, the same with one of a length."""
    yield arguments
    if any(text.startswith(_OF_ANY_LENGTH) for text in arguments.values()):
        yield {name: text.replace(_OF_ANY_LENGTH, _OF_ONE_LENGTH, 1) for name, text in arguments.items()}


def whole_graph(made: Any, values: Iterable[Any]) -> Any:
    """The model of a graph of Keras that a function made of one of these values, x; whatever else stays. Raises what
    the graph raises that does not run."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(made, keras.KerasTensor):
        return made
    x = next((each for each in values if isinstance(each, keras.KerasTensor)), None)
    if x is None:
        return made
    model = keras.Model(x, made)
    model(np.zeros([size or SEQUENCE for size in x.shape], np.float32))
    return model
