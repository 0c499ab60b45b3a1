"""The JAX implementation: what the suite does not ask."""

from collections.abc import Callable

import pytest


def test_sizes_and_choices_that_do_not_fit() -> None:
    from impls.jax_pure.encoder import Config

    right = {"d_model": 12, "num_heads": 4, "activation": "gelu", "placement": "pre", "epsilon": 1e-5}
    assert Config(**right)
    with pytest.raises(ValueError, match=r"10.*4"):
        Config(**{**right, "d_model": 10})
    with pytest.raises(ValueError, match="swish"):
        Config(**{**right, "activation": "swish"})
    with pytest.raises(ValueError, match="middle"):
        Config(**{**right, "placement": "middle"})


@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("jax_pure", "JaxPure", 1) > 0.8
    assert busiest_thread("jax_pure", "JaxPure", 2) < 0.7


def test_every_wrong_form_can_be_planted(planted_forms: Callable[[str], None]) -> None:
    planted_forms("planted_jax")


def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("jax_pure")


def test_a_stage_by_itself_is_the_stage_of_the_whole() -> None:
    """What `profile` times: a stage computed from those before it, as zeros in their place show."""
    import jax.numpy as jnp
    import numpy as np

    from harness.adapter import Masks
    from harness.spec.case import layer_parameters
    from harness.spec.load import load
    from impls.jax_pure.adapter import JaxPure, one_stage

    adapter, layer = JaxPure(), load().layers["pre-gelu"]
    adapter.start("cpu", 1)
    drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    adapter.build(layer.model_dump(mode="json"), drawn, "float32")
    x = np.linspace(-1, 1, 2 * 5 * layer.d_model, dtype=np.float32).reshape(2, 5, -1)
    shown = adapter.stages(x, Masks(None, None))
    zeroed = {name: jnp.zeros_like(stage) for name, stage in shown.items()}
    for name, stage in shown.items():
        alone = one_stage(name, adapter.config, adapter.params, x, None, shown)
        np.testing.assert_allclose(alone, stage, rtol=1e-5, atol=1e-6)
    for name in ("query_heads", "attention_scores", "context", "context_merged", "output"):
        assert not one_stage(name, adapter.config, adapter.params, x, None, zeroed).any()
