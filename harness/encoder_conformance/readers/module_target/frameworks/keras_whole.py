"""A whole layer or model of Keras: called with the inputs that it has, or with arguments by name."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import keras
import numpy as np

from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.frameworks.backends import BACKENDS, Backend, Function
from encoder_conformance.readers.module_target.frameworks.keras_built import own_error
from encoder_conformance.readers.module_target.frameworks.keras_policy import eagerly, in_policy
from encoder_conformance.readers.module_target.given_as import Argument, arguments_of, converted, tensors_in
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.spec.axes import Array

_NO_ARRAYS = ("training",)


class WholeKeras(WholeModule):
    """The layer as it is, whose variables have other values and other policies for the time of a call."""

    def __init__(
        self,
        layer: Any,
        precision: str = "own",
        values: Sequence[Array] | None = None,
        programs: dict[str, Function] | None = None,
    ) -> None:
        """`programs`: of each precision, which all copies share; they may be compiled."""
        self._layer, self._precision, self._values = layer, precision, values
        self._programs = {} if programs is None else programs
        self._backend: Backend = BACKENDS[keras.backend.backend()]()
        paths = Counter(weight.path for weight in layer.weights)
        self._paths = [
            weight.path if paths[weight.path] == 1 else f"{weight.path} {number}"
            for number, weight in enumerate(layer.weights)
        ]
        if is_functional(layer):
            self.taken = [Argument(each.name, kind=_kind(each.dtype), rank=len(each.shape)) for each in layer.inputs]
        else:
            taken, self.free = arguments_of(layer.call)
            self.taken = [each for each in taken if each.name not in _NO_ARRAYS]

    def _disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeKeras":
        if precision == "own" and seed is None:
            return WholeKeras(self._layer, programs=self._programs)
        values = [np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in self._layer.weights]
        if precision == "float64":
            values = [each.astype(np.float64) if each.dtype.kind == "f" else each for each in values]
        if seed is not None:
            draw = np.random.default_rng(seed)
            values = [_other(each, draw, roundoff) for each in values]
        return WholeKeras(self._layer, precision, values, self._programs)

    def outputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Raises RuntimeError, with the last frames of the layer's own traceback."""
        if self._precision not in self._programs:
            self._programs[self._precision] = self._backend.called(self._returned)
        with self._in_precision():
            found = self._programs[self._precision](self._parameters(), self._fed(given))
            return {name: np.asarray(keras.ops.convert_to_numpy(value)) for name, value in found.items()}

    def steps(self, given: Mapping[str, Any]) -> tuple[list[TracedStep], dict[str, Array]]:
        """Raises RuntimeError as `outputs` does."""
        with self._in_precision():
            return self._backend.steps(self._returned, self._layer, self._parameters(), self._fed(given))

    @contextmanager
    def _in_precision(self) -> Generator[None]:
        by_policy = nullcontext() if self._precision == "own" else in_policy(self._layer, self._precision)
        try:
            with eagerly(), self._backend.wide_enough(self._precision), by_policy:
                yield
        except Exception as error:
            raise RuntimeError(last_frames(own_error(error))) from None

    def _parameters(self) -> dict[str, Any]:
        """Path → value [*shape]."""
        values = [weight.value for weight in self._layer.weights] if self._values is None else self._values
        tensors = map(keras.ops.convert_to_tensor if self._values is None else self._tensor, values)
        return dict(zip(self._paths, tensors, strict=True))

    def _fed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if is_functional(self._layer):
            return {each.name: keras.ops.cast(given[each.name], each.dtype) for each in self._layer.inputs}
        return converted(given, self._tensor)

    def _returned(self, parameters: Mapping[str, Any], fed: Mapping[str, Any]) -> dict[str, Any]:
        """Output → tensor, where the layer's weights are these."""
        held = [*zip(self._layer.weights, (parameters[path] for path in self._paths), strict=True)]
        with keras.StatelessScope(held):
            answer = self._called(dict(fed))
        return dict(tensors_in(answer, keras.ops.is_tensor))

    def _called(self, fed: dict[str, Any]) -> Any:
        if is_functional(self._layer):
            return self._layer(keras.tree.map_structure(lambda each: fed[each.name], self._layer.input), training=False)
        first = next((each.name for each in self.taken if each.name in fed), next(iter(fed)))
        held = dict(fed.pop(first)) if isinstance(fed[first], dict) else fed.pop(first)
        return self._layer(held, **fed)

    def _tensor(self, value: Array) -> Any:
        """[*shape], in the format that it is called in what is of floating-point numbers."""
        format = self._layer.compute_dtype if self._precision == "own" else self._precision
        made = keras.ops.convert_to_tensor(value)
        return keras.ops.cast(made, format) if value.dtype.kind not in "iub" else made


def is_functional(module: Any) -> bool:
    return isinstance(module, keras.Model) and bool(getattr(module, "inputs", None))


def _kind(dtype: Any) -> str:
    return "b" if str(dtype) == "bool" else "i" if "int" in str(dtype) else "f"


def _other(value: Array, draw: np.random.Generator, roundoff: float) -> Array:
    """A value [*shape], each of its numbers another by up to `roundoff` of itself; integers as they are."""
    if value.dtype.kind in "iub":
        return value
    noisy: Array = value * (1.0 + roundoff * draw.uniform(-1.0, 1.0, value.shape))
    return noisy.astype(value.dtype)
