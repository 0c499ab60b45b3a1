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
_OF_KERAS = "keras", "tensorflow"
_LENGTHS = "None", "32"
"""Numbers of positions of its input, as source: any, or that of a graph which is made for one."""


def symbolic_x(found: Any, name: str, d_model: str) -> str:
    """The source of what a function of a file that uses Keras is given for this argument; "" where it is no input of a
    graph."""
    if not (inspect.isfunction(found) and "keras" in sys.modules and _NAMES.fullmatch(name)):
        return ""
    modules = (each.__name__ if inspect.ismodule(each) else _module_of(each) for each in names_of(found).values())
    uses_keras = any(each.partition(".")[0] in _OF_KERAS for each in modules)
    return _input_of(_LENGTHS[0], d_model) if uses_keras else ""


def _module_of(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "")


def _input_of(length: str, d_model: str) -> str:
    return f"keras.Input(({length}, {d_model}))"


def of_each_length(arguments: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The arguments, and the same with an input of so many positions where one is an input of a graph."""
    before, beside = _input_of("\0", "\0").split("\0")[0], f"({_LENGTHS[0]}, "
    symbolic = [name for name, text in arguments.items() if text.startswith(before) and beside in text]
    yield arguments
    for length in _LENGTHS[1:] if symbolic else ():
        yield {**arguments, **{each: arguments[each].replace(beside, f"({length}, ", 1) for each in symbolic}}


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
