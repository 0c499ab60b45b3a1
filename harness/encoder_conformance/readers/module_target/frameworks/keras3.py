"""Keras 3: layers, functional and subclassed models, on the backend that KERAS_BACKEND or keras.json names."""

import random
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx

from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling_lines import SoughtLines
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.frameworks.backends import BACKENDS, Backend
from encoder_conformance.readers.module_target.frameworks.keras_built import ARRAYS, build, call_of
from encoder_conformance.readers.module_target.frameworks.keras_draws import drawn_at, drops_uncalled
from encoder_conformance.readers.module_target.frameworks.keras_graph import NAME, PartsOfGraph, layers_of_graph
from encoder_conformance.readers.module_target.frameworks.keras_inputs import WithEveryInput, opened
from encoder_conformance.readers.module_target.frameworks.keras_masks import with_its_mask
from encoder_conformance.readers.module_target.frameworks.keras_names import (
    KerasTree,
    attributes_of,
    convolves,
    never_built,
    not_held,
    objects_of,
)
from encoder_conformance.readers.module_target.frameworks.keras_policy import eagerly, in_policy
from encoder_conformance.readers.module_target.frameworks.keras_positions import all_positions_at_once
from encoder_conformance.readers.module_target.frameworks.keras_stack import line_of_caller
from encoder_conformance.readers.module_target.frameworks.keras_whole import WholeKeras, is_functional
from encoder_conformance.readers.module_target.live import (
    Feeds,
    HeldModule,
    LiveModule,
    Loose,
    Seen,
    Signature,
    joined,
)
from encoder_conformance.readers.module_target.parts import PartsOfModule, Tree, calls, walk
from encoder_conformance.readers.module_target.remembering import State, kept_by_function
from encoder_conformance.readers.module_target.returned import leaves, like_x
from encoder_conformance.readers.module_target.supplies import ToldOf
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS

_TRAINING = "training"
"""The argument that turns dropout on in every layer of Keras."""
Called = Callable[..., Any]
"""The layer, as its owner calls it."""


class KerasModule(HeldModule):
    """The layer itself, whose variables stay as they are: it is called with values in their place.

    A copy in float32 computes in that, whatever the policies of its parts are; one in `own_format` by these.
    """

    library = str(Path(keras.__file__).parent)
    may_take_objects = False

    def __init__(self, layer: Any, signature: Signature, values: list[Array], call: Called) -> None:
        super().__init__(signature, (weight.path.replace("/", ".") for weight in layer.weights), values)
        self.layer, self._weights, self._call, self._by_policy = layer, list(layer.weights), call, False
        self._told: Mapping[str, bool | None] = {}
        held = {id(weight) for weight in layer.weights}
        others = [each for each in layer.variables if id(each) not in held and "int" in str(each.dtype)]
        self._seeds = [(each, np.asarray(keras.ops.convert_to_numpy(each.value))) for each in others]
        self._drawn = 0
        attributes = attributes_of(layer)
        pairs = zip(self.names, self._weights, strict=True)
        self.heard = {name: attributes[id(weight)] for name, weight in pairs if id(weight) in attributes}
        self.formats = {name: str(weight.dtype) for name, weight in zip(self.names, self._weights, strict=True)}
        self.formats |= {f"{name}, its policy": each.compute_dtype for name, each in walk(FRAMEWORK.tree, layer)}
        self.type_name = f"{type(layer).__module__}.{type(layer).__qualname__}"
        self.idle_parts = never_built(layer)
        self._backend: Backend = BACKENDS[keras.backend.backend()]()

    def call(self, feeds: Feeds) -> Array:
        return np.asarray(keras.ops.convert_to_numpy(self._output(self._tensors(), feeds)))

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""

        def output(x: Any, *values: Any) -> Any:
            return self._output(list(values), {**feeds, "x": x})

        given = [keras.ops.convert_to_tensor(feeds["x"]), *self._tensors()]
        by_x, *own = self._backend.gradients(output, given, cotangent)
        return by_x, joined(own)

    def in_training(self, feeds: Feeds) -> LiveModule:
        """Seeds lie in variables, which a call without state leaves as they are."""
        made = self._like(self.signature)
        made._told, made.seeded = {_TRAINING: True}, True
        return made

    def trains_unless_told(self, feeds: Feeds) -> bool:
        fixed = {name: value for name, value in self.signature.fixed.items() if name != _TRAINING}
        told_so, plain = self._like(self.signature), self._like(replace(self.signature, fixed=fixed))
        told_so.seeded = plain.seeded = True
        if isinstance(self._call, WithEveryInput):
            plain._told = {_TRAINING: None}
        try:
            told, left = (each.run(feeds)["output"] for each in (told_so, plain))
        except ExecutionError:  # it has to be told
            return False
        return differ(told, left)

    def arranged(self, arrangement: Arrangement) -> "KerasModule":
        return self._like(self.signature.arranged(arrangement))

    def kept(self, feeds: Feeds) -> Kept | None:
        """Of weights that no gradient trains: calls have values in their place, and so leave each as it is."""
        still = {name: at for at, name in enumerate(self.names) if not self._weights[at].trainable}
        if not still:
            return None

        def step(held: State, feeds: Feeds) -> tuple[Array, State]:
            values = self._tensors()
            for name, value in held.items():
                values[still[name]] = keras.ops.convert_to_tensor(value)
            after: dict[str, Array] = {}
            output = self._output(values, feeds, lambda scope: after.update(self._in(scope, still)))
            return np.asarray(keras.ops.convert_to_numpy(output)), after

        return kept_by_function(step, {name: self.values[at] for name, at in still.items()}, feeds)

    def _in(self, scope: Any, places: Mapping[str, int]) -> Iterator[tuple[str, Array]]:
        """Name → the value that its weight has in this scope."""
        for name, at in places.items():
            yield name, np.asarray(keras.ops.convert_to_numpy(scope.get_current_value(self._weights[at])))

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        seen: Seen = {}

        def keep(path: str, side: str, value: Any) -> None:
            for index, each in enumerate(leaves(value)):
                if keras.ops.is_tensor(each) and (only is None or path in only):
                    seen[path, side, index] = np.asarray(keras.ops.convert_to_numpy(each))

        return seen, calls(FRAMEWORK.tree, self.layer, keep, lambda: self.call(feeds))

    def take_in(self, feeds: Feeds) -> Loose:
        """They are named alone: what Keras does not hold is no weight of a copy."""
        return Loose(not_held(self.layer, lambda: self.call(feeds)))

    def drawn_at(self, feeds: Feeds) -> str:
        return drawn_at(FRAMEWORK.tree, self.layer, lambda: self.call(feeds))

    def drops_uncalled(self, feeds: Feeds) -> Mapping[str, float]:
        training = self.in_training(feeds)
        return drops_uncalled(FRAMEWORK.tree, self.layer, lambda: training.call(feeds))

    def _called_at(self, feeds: Feeds) -> dict[str, tuple[str, ...]]:
        """The path of a part → the lines that call it, in order."""
        called: dict[str, tuple[str, ...]] = {}

        def keep(path: str, side: str, value: Any) -> None:
            if side == "input" and (line := line_of_caller()):
                called[path] = *called.get(path, ()), line

        calls(FRAMEWORK.tree, self.layer, keep, lambda: self.call(feeds))
        return called

    def lines(self, feeds: Feeds) -> Mapping[str, tuple[str, ...]]:
        """Of a weight the lines that call its layer, the innermost that has it."""
        called = self._called_at(feeds)
        places = {id(weight): name for name, weight in zip(self.names, self._weights, strict=True)}
        parts = sorted(walk(FRAMEWORK.tree, self.layer), key=lambda each: each[0].count("."))
        return {places[id(weight)]: called[path] for path, part in parts if path in called for weight in part.weights}

    def _tensors(self) -> list[Any]:
        return [keras.ops.convert_to_tensor(value) for value in self.values]

    def _output(
        self, values: list[Any], feeds: Mapping[str, Any], then: Callable[[Any], object] = lambda scope: None
    ) -> Any:
        """The output, in the shape of x, for these values of its weights. `then` is told of the scope of the call."""
        tensors = {name: keras.ops.convert_to_tensor(value) for name, value in feeds.items()}
        x, wide = tensors.pop("x"), nullcontext() if self._by_policy else in_policy(self.layer, "float32")
        held = [*zip(self._weights, values, strict=True), *self._next_seeds()]
        with wide, _eagerly(self.layer), keras.StatelessScope(held) as scope:
            answer = self._called(x, tensors)
            then(scope)
            return answer

    def _next_seeds(self) -> Iterator[tuple[Any, Any]]:
        """What its generators hold in this call: a scope forgets what a call leaves in them."""
        self._drawn = 0 if self.seeded else self._drawn + 1
        for seed, held in self._seeds:
            yield seed, keras.ops.convert_to_tensor(held + np.asarray(self._drawn, held.dtype))

    def _called(self, x: Any, masks: Mapping[str, Any]) -> Any:
        return self.signature.called(self._call, x, {**masks, **self._told}, ARRAYS)

    def in_dtype(self, dtype: str) -> "KerasModule":
        """A layer casts what it is given to the dtype of its policy."""
        if dtype not in ("float32", self.own_format):
            raise ExecutionError(f"a layer of Keras computes in the dtype of its policy, and not in {dtype}")
        made = self._like(self.signature)
        made._by_policy = dtype == self.own_format
        if made._by_policy:
            pairs = zip(made.values, self._weights, strict=True)
            made.values = [value.astype(FORMATS[str(weight.dtype)].numpy) for value, weight in pairs]
        return made

    def _like(self, signature: Signature) -> "KerasModule":
        made = type(self)(self.layer, signature, [value.copy() for value in self.values], self._call)
        made.own_format, made._by_policy, made._told = self.own_format, self._by_policy, self._told
        made.seeded = self.seeded
        return made

    @property
    def wrappers(self) -> tuple[str, ...]:
        return _compiled_as(self.layer)

    def compiled(self) -> LiveModule | None:
        kind = _Predicting if _is_compiled_model(self.layer) else _InFunction
        return kind(self.layer, self.signature, self.values, self._call) if self.wrappers else None

    def ways(self) -> Mapping[str, LiveModule]:
        compiled = self.compiled()
        return {} if compiled is None else {f"{' and '.join(self.wrappers)}, and its own code,": compiled}

    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        with all_positions_at_once():
            return self._backend.export(lambda x: self._output(self._tensors(), {"x": x}), x_shape)

    def beyond(self, x: Array, layout: Layout) -> Mapping[Feature, str]:
        values = self._tensors()
        return self._backend.beyond(lambda x: self._output(values, {"x": x}), x)

    def sought_lines(self, model: onnx.ModelProto, x_shape: tuple[int, ...]) -> SoughtLines | None:
        values = self._tensors()

        def as_exported(x: Any) -> Any:
            with all_positions_at_once():
                return self._output(values, {"x": x})

        return self._backend.lines(as_exported, model, x_shape)

    def objects(self) -> Iterator[object]:
        return objects_of(self.layer)


class _Held(KerasModule):
    """A layer whose variables hold the values for the time of a call, as compiled code takes them."""

    def call(self, feeds: Feeds) -> Array:
        before = [np.asarray(keras.ops.convert_to_numpy(weight.value)) for weight in self._weights]
        try:
            self._hold(self.values)
            return self._answer(feeds)
        finally:
            self._hold(before)

    def _hold(self, values: list[Array]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)

    @abstractmethod
    def _answer(self, feeds: Feeds) -> Array:
        """The output, in the shape of x."""


class _Predicting(_Held):
    """A model that was compiled, as `predict` calls it."""

    def _answer(self, feeds: Feeds) -> Array:
        """Raises ExecutionError where a mask is given that is no input of the model: predict gives it x alone."""
        masks = {name: keras.ops.convert_to_tensor(value) for name, value in feeds.items() if name != "x"}
        if isinstance(self._call, WithEveryInput):
            given = self._call.given(keras.ops.convert_to_tensor(feeds["x"]), masks)
            answer = self.layer.predict_on_batch(given if len(given) > 1 else given[0])
        elif masks:
            raise ExecutionError(f"predict gives it no {', '.join(masks)}")
        else:
            answer = self.layer.predict_on_batch(feeds["x"])
        return np.asarray(like_x(answer, feeds["x"], lambda value: isinstance(value, np.ndarray)))


class _InFunction(_Held):
    """A layer of TensorFlow some of whose calls are functions of TensorFlow, which it compiled with its variables."""

    def _answer(self, feeds: Feeds) -> Array:
        tensors = {name: keras.ops.convert_to_tensor(value) for name, value in feeds.items()}
        x = tensors.pop("x")
        return np.asarray(keras.ops.convert_to_numpy(self._called(x, tensors)))


def _is_compiled_model(layer: Any) -> bool:
    return isinstance(layer, keras.Model) and layer.compiled


def _compiled_as(layer: Any) -> tuple[str, ...]:
    """What it is compiled by: a model's `compile`, of which its own call knows nothing, or functions of TensorFlow."""
    if _is_compiled_model(layer):
        return ("predict, compiled with jit_compile" if layer.jit_compile else "predict, compiled",)
    functions = [each.call for _, each in walk(FRAMEWORK.tree, layer) if hasattr(each.call, "get_concrete_function")]
    how = " with jit_compile" if any(getattr(each, "_jit_compile", None) for each in functions) else ""
    return (f"tf.function{how}",) if functions else ()


def _eagerly(layer: Any) -> AbstractContextManager[None]:
    return eagerly() if _compiled_as(layer) else nullcontext()


class _Keras(ModuleFramework):
    name = "Keras"
    packages = ("keras", "tensorflow-cpu", "tensorflow", "jax", "torch")
    tree: Tree = KerasTree()

    def owns(self, found: object) -> bool:
        return isinstance(found, keras.layers.Layer)

    def refuse_unfit(self, module: Any) -> None:
        parts = [part for _, part in walk(self.tree, module)]
        if any(getattr(part, "quantization_mode", None) for part in parts):
            problem = "a quantised layer holds integers, of which σ says nothing"
            raise BadTarget(problem, "check the layer before", "no-layer-by-kind")
        convolution = next((part.name for part in parts if convolves(part)), None)
        if convolution and not any(isinstance(part, keras.layers.Dense) for part in parts):
            problem = f"{convolution} is a convolution, and no part of an encoder layer"
            raise BadTarget(problem, "", "no-layer-by-kind", names=[convolution])

    def parts(self, module: Any) -> PartsOfModule:
        return PartsOfGraph(self.tree, module) if is_functional(module) else super().parts(module)

    def at(self, module: Any, path: str | None) -> Any:
        cut_out = layers_of_graph(module) if path == NAME and is_functional(module) else None
        return super().at(module, path) if cut_out is None else cut_out

    def built(self, module: Any, told: ToldOf) -> Any:
        if not is_functional(module):
            build(module, told)
        return module

    def live(self, module: Any) -> LiveModule:
        if is_functional(module):
            return self._functional(module)
        if module.name.startswith("_"):  # a class' name gives it; TensorFlow's graphs begin none so
            module.name = module.name.lstrip("_") or "layer"
        signature, bundled = call_of(module), build(module)
        return with_its_mask(
            module, signature, lambda call, own: KerasModule(module, own, _values(module), call).arranged(bundled)
        )

    def whole(self, module: Any) -> WholeModule:
        """A layer that its first call builds takes an x; what is built is called with whatever it takes."""
        if not is_functional(module) and not (module.built and module.weights):
            build(module)
        return WholeKeras(module)

    def _functional(self, model: Any) -> LiveModule:
        """x is the first input [batch, positions, features] of floating-point numbers; the others are masks."""
        inputs = [each for each in model.inputs if len(each.shape) == 3 and "float" in str(each.dtype)]
        if not inputs:
            shapes = ", ".join(f"{each.name} {list(each.shape)}" for each in model.inputs)
            problem = f"it takes {shapes}, and no x [batch, sequence, d_model]"
            raise BadTarget(problem, "--at names a part of a model", "takes-no-x")
        signature = Signature(inputs[0].name, tuple(each.name for each in model.inputs if each is not inputs[0]))
        x = np.random.default_rng(0).normal(size=(BATCH, SEQUENCE, inputs[0].shape[-1])).astype(np.float32)
        return opened(model, signature.x, x, lambda call: KerasModule(model, signature, _values(model), call))

    def notes(self, module: Any) -> tuple[Finding, ...]:
        return ()

    @contextmanager
    def undisturbed(self) -> Generator[None]:
        """Keras draws its seeds from Python's own generator."""
        state, drawn = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(drawn)


def _values(layer: Any) -> list[Array]:
    return [np.asarray(keras.ops.convert_to_numpy(weight.value)).astype(np.float32) for weight in layer.weights]


FRAMEWORK = _Keras()
