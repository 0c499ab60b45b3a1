"""The work that Keras leaves to its backends: gradients by any tensor, the export of a function, its steps."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import onnx

from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.calling_lines import SoughtLines
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

Function = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""(parameters by path, inputs by name) → what a module returns for them."""
Steps = tuple[list[TracedStep], dict[str, Array]]
"""The steps of a call, and the values of floating-point numbers by the number of their step."""


class Backend(Protocol):
    """`called`: a function as what is called with many values of one shape is best called. `wide_enough`: where
    numbers of this format can be computed with. `steps`: of a call of a module's `function`. `beyond`: what a function
    does that the specification has not, and its line, where the export of it does not show that."""

    def gradients(self, function: Callable[..., Any], given: Sequence[Any], cotangent: Array) -> list[Array]: ...
    def export(self, function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto: ...
    def lines(
        self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> SoughtLines | None: ...
    def beyond(self, function: Callable[..., Any], x: Array) -> Mapping[Feature, str]: ...
    def called(self, function: Function) -> Function: ...
    def wide_enough(self, format: str) -> AbstractContextManager[Any]: ...
    def steps(
        self, function: Function, module: object, parameters: Mapping[str, Any], fed: Mapping[str, Any]
    ) -> Steps: ...


class _CalledAsItComes:
    """What a backend that runs one operation after another does."""

    def beyond(self, function: Callable[..., Any], x: Array) -> Mapping[Feature, str]:
        return {}

    def called(self, function: Function) -> Function:
        return function

    def wide_enough(self, format: str) -> AbstractContextManager[Any]:
        return nullcontext()


class TensorFlow(_CalledAsItComes):
    def gradients(self, function: Callable[..., Any], given: Sequence[Any], cotangent: Array) -> list[Array]:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            for each in given:
                tape.watch(each)
            output = function(*given)
        by = tape.gradient(output, list(given), output_gradients=tf.constant(cotangent))
        pairs = zip(given, by, strict=True)
        return [np.asarray(tf.zeros_like(each) if g is None else tf.convert_to_tensor(g)) for each, g in pairs]

    def export(self, function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto:
        from encoder_conformance.readers.module_target.frameworks.tensorflow_export import exported

        return exported(function, x_shape)

    def lines(
        self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> SoughtLines | None:
        from encoder_conformance.readers.module_target.frameworks.tensorflow_export import LinesByName

        return LinesByName(function, model, x_shape)

    def steps(self, function: Function, module: object, parameters: Mapping[str, Any], fed: Mapping[str, Any]) -> Steps:
        from encoder_conformance.readers.module_target.frameworks.tensorflow_trace import traced_call

        return traced_call(lambda: function(parameters, fed), parameters, fed)


class Jax:
    def gradients(self, function: Callable[..., Any], given: Sequence[Any], cotangent: Array) -> list[Array]:
        import jax

        return [np.asarray(each) for each in jax.vjp(function, *given)[1](cotangent)]

    def export(self, function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto:
        from encoder_conformance.readers.module_target.frameworks.jax_export import exported

        return exported(function, x_shape)

    def lines(
        self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> SoughtLines | None:
        from encoder_conformance.readers.module_target.frameworks.jax_lines import LinesByValue

        return LinesByValue(function, model, x_shape)

    def beyond(self, function: Callable[..., Any], x: Array) -> Mapping[Feature, str]:
        """Of some operators there is no export."""
        import jax

        from encoder_conformance.readers.module_target.frameworks.jax_steps import beyond

        return beyond(jax.make_jaxpr(function)(x))

    def called(self, function: Function) -> Function:
        from encoder_conformance.readers.module_target.frameworks.jax_compiled import Compiled

        return Compiled(function)

    def wide_enough(self, format: str) -> AbstractContextManager[Any]:
        from encoder_conformance.readers.module_target.frameworks.jax_tree import wide

        return wide(format)

    def steps(self, function: Function, module: object, parameters: Mapping[str, Any], fed: Mapping[str, Any]) -> Steps:
        from encoder_conformance.readers.module_target.frameworks.jax_trace import traced

        return traced(function, dict(parameters), fed)


class Torch(_CalledAsItComes):
    def gradients(self, function: Callable[..., Any], given: Sequence[Any], cotangent: Array) -> list[Array]:
        import torch

        wanted = [each.detach().requires_grad_() for each in given]
        with torch.enable_grad():
            output = function(*wanted)
        seed = torch.from_numpy(np.ascontiguousarray(cotangent))
        by = torch.autograd.grad(output, wanted, grad_outputs=seed, materialize_grads=True)
        return [each.numpy(force=True) for each in by]

    def export(self, function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto:
        from encoder_conformance.readers.module_target.frameworks.torch_export import exported

        return exported(function, x_shape)

    def lines(
        self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> SoughtLines | None:
        return None  # PyTorch's exporter keeps them

    def steps(self, function: Function, module: object, parameters: Mapping[str, Any], fed: Mapping[str, Any]) -> Steps:
        from encoder_conformance.readers.module_target.frameworks.torch_trace import traced_call

        return traced_call(lambda: function(parameters, fed), module, parameters, fed)


BACKENDS: dict[str, Callable[[], Backend]] = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}
