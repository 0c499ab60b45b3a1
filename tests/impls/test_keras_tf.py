"""The Keras implementation, on TensorFlow: what the suite does not ask."""

from collections.abc import Callable

import pytest


def test_sizes_and_choices_that_do_not_fit() -> None:
    from impls.keras_tf import adapter  # noqa: F401  (chooses Keras' backend)
    from impls.keras_tf.encoder import EncoderLayer

    right = {"activation": "gelu", "placement": "pre", "epsilon": 1e-5}
    with pytest.raises(ValueError, match=r"10.*4"):
        EncoderLayer(10, 4, 16, **right)
    with pytest.raises(ValueError, match="swish"):
        EncoderLayer(12, 4, 16, **{**right, "activation": "swish"})
    with pytest.raises(ValueError, match="middle"):
        EncoderLayer(12, 4, 16, **{**right, "placement": "middle"})


@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("keras_tf", "KerasTensorFlow", 1) > 0.8
    assert busiest_thread("keras_tf", "KerasTensorFlow", 2) < 0.7


def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("keras_tf")
