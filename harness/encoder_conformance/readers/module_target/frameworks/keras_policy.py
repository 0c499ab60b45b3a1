"""Has a layer of Keras compute in another format than that of its policy, for the time of a call."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import keras
from keras.src.backend.common import dtypes as promotion


@contextmanager
def in_policy(layer: Any, format: str) -> Generator[None]:
    """All parts of a layer compute in this format, and none of its weights is rounded to the one that it has.

    Raises RuntimeError where Keras would compute in another one.
    """
    parts = [each for each in (layer, *layer._flatten_layers(include_self=False)) if each.compute_dtype != format]
    others = [each for each in layer.weights if "float" in str(each.dtype) and each.dtype != format]
    before, formats = [each.dtype_policy for each in parts], [each.dtype for each in others]
    usual = keras.config.floatx()
    try:
        for each in parts:
            each.dtype_policy = format
        for weight in others:  # a scope without state gives each the format that its variable says
            weight._dtype = format
        keras.config.set_floatx(format)
        with _promoted() if format == "float64" else nullcontext():
            yield
    finally:
        keras.config.set_floatx(usual)
        for each, policy in zip(parts, before, strict=True):
            each.dtype_policy = policy
        for weight, own in zip(others, formats, strict=True):
            weight._dtype = own


@contextmanager
def _promoted() -> Generator[None]:
    """An operation of Keras on two numbers of float64 gives float64. On JAX and PyTorch Keras makes float32 of it, for
    that is what JAX does unless it is told otherwise (`keras.backend.result_type`)."""
    with patch.dict(getattr(promotion, "BIT64_TO_BIT32_DTYPE", {}), float64="float64"):
        if (format := keras.backend.result_type("float64", "float64")) != "float64":
            raise RuntimeError(f"Keras {keras.__version__} computes {format} of two numbers of float64")
        yield


@contextmanager
def eagerly() -> Generator[None]:
    """No function of TensorFlow is called compiled: it would keep the values that it was compiled with."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
