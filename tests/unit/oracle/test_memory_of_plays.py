"""What an evaluation leaves behind: of a large stack one layer's parameters are held at a time."""

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.case_parameters import Converted
from encoder_conformance.spec.load import load


@pytest.fixture
def without_collecting() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collecting")
def test_the_parameters_of_a_layer_are_freed_when_the_next_is_evaluated() -> None:
    described = load().layers["post-relu"]
    layer = described.model_copy(update={"stack": described.stack.model_copy(update={"layers": 3})})
    drawn = layer_parameters(layer, {})
    made: list[weakref.ref[np.ndarray]] = []

    def read(name: str) -> np.ndarray:
        value = drawn[name].copy()
        made.append(weakref.ref(value))
        return value

    x = np.random.default_rng(0).normal(size=(1, 2, layer.d_model))
    forward(layer, LayerInputs(x, Converted({name: name for name in drawn}, read), None), Arithmetic())
    assert len(made) >= len(drawn)
    assert [each for each in made if each() is not None] == []
