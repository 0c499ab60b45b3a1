"""The work that Keras leaves to its backends: gradients by any tensor, and the export of a function."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from encoder_conformance.readers.module_target.calling_lines import SoughtLines
from encoder_conformance.spec.axes import Array


class Backend(Protocol):
    def gradients(self, function: Callable[..., Any], given: Sequence[Any], cotangent: Array) -> list[Array]: ...
    def export(self, function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto: ...
    def lines(
        self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> SoughtLines | None: ...


class TensorFlow:
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


class Torch:
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


BACKENDS: dict[str, Callable[[], Backend]] = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}
