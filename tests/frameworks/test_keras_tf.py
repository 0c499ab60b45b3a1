"""The Keras implementation, on TensorFlow: what the suite does not ask."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from placed import assert_told


def test_sizes_and_choices_that_do_not_fit() -> None:
    from encoder_conformance.impls.keras_tf import adapter  # first: it chooses Keras' backend
    from encoder_conformance.impls.keras_tf.attention import Maps, MultiHeadAttention
    from encoder_conformance.impls.keras_tf.feed_forward import FeedForward
    from encoder_conformance.impls.keras_tf.softmax import MaskedSoftmax

    layers = adapter.keras.layers
    linear, dropout = layers.Dense(10), layers.Dropout(0.0)
    with pytest.raises(ValueError, match=r"10.*4"):
        MultiHeadAttention(Maps(linear, linear, linear, linear), 4, 10, MaskedSoftmax(), dropout)
    with pytest.raises(ValueError, match="swish"):
        FeedForward(linear, "swish", linear, dropout)


@pytest.mark.release
@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("keras_tf", "KerasTensorFlow", 1) > 0.8
    assert busiest_thread("keras_tf", "KerasTensorFlow", 2) < 0.7


def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("keras_tf")


def test_a_layer_that_is_built_again_is_the_one_made_before_with_its_new_parameters() -> None:
    """A fresh one for `initialise` is not: what it begins with is asked, and it is not kept."""
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.keras_tf.adapter import KerasTensorFlow
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layers = KerasTensorFlow(), load().layers
    made, answers = [], []
    for name, exponents in (("pre-gelu", {}), ("post-relu", {}), ("pre-gelu", {"norm1.gain": 3}), ("pre-gelu", {})):
        drawn = layer_parameters(layers[name], exponents)
        held = adapter.build(layers[name].model_dump(mode="json"), drawn, "float64")
        assert all(np.array_equal(held[name], value) for name, value in drawn.items())
        made.append(adapter.encoder)
        x = np.linspace(-1, 1, 6 * layers[name].d_model).reshape(2, 3, -1)
        answers.append(adapter.output(x, Masks(None, None), RunRequest()))
        adapter.initialise(1)
    assert made[0] is made[2] is made[3]
    assert not np.array_equal(answers[0], answers[2])
    assert np.array_equal(answers[0], answers[3])


@pytest.mark.release
def test_checkpointing_computes_again_what_was_dropped_and_no_more() -> None:
    """What is computed again must drop what was dropped: the gradient by the last bias counts what was kept."""
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.keras_tf.adapter import KerasTensorFlow
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    passes: list[str] = []

    class Counted(KerasTensorFlow):
        def forward(self, *given: object) -> object:
            passes.append("forward")
            return super().forward(*given)

    adapter, layer = Counted(), load().layers["pre-gelu-dropout"]
    adapter.build(layer.model_dump(mode="json"), layer_parameters(layer, {}), "float64")
    x, nothing = np.linspace(-1, 1, 2 * 5 * 24).reshape(2, 5, 24), Masks(None, None)
    train = RunRequest(mode="train", seed=7)
    plain = adapter.gradients(x, nothing, train, np.ones_like(x))
    assert len(passes) == 1
    again = adapter.gradients(x, nothing, replace(train, checkpoint=True), np.ones_like(x))
    assert len(passes) == 3, "once forward, and once again for the way back"
    kept = plain["feed_forward.output.bias"] * 0.8  # a multiple of 1 / (1 - 0.2)
    assert np.allclose(kept, kept.round())
    assert 4 < kept.mean() < 10
    for name, gradient in plain.items():
        assert np.allclose(gradient, again[name], rtol=1e-12, atol=1e-12), name


def test_a_new_folder_passes_smoke_once_its_blanks_are_filled(conform: Callable, filled: Callable) -> None:
    ended = conform("smoke", filled("keras"))
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.release  # the order of checks is the same in every framework
def test_a_wrong_epsilon_fails_within_the_first_ten_checks(wrong_epsilon: Callable[..., None]) -> None:
    wrong_epsilon("keras_tf", "KerasTensorFlow")


def test_token_ids_lie_where_a_run_says() -> None:
    from encoder_conformance.impls.keras_tf.adapter import KerasTensorFlow

    assert_told(KerasTensorFlow())  # not started: TensorFlow takes its threads before it computes, once in a process
