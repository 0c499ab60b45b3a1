"""The JAX implementation: what the suite does not ask."""

from collections.abc import Callable
from pathlib import Path

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


def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("jax_pure", "JaxPure", 1) > 0.8
    assert busiest_thread("jax_pure", "JaxPure", 2) < 0.7


def test_every_wrong_form_can_be_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/diagnosis.py plants them all in this encoder."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "plants"))
    from planted_jax.steps import WAYS as PLANTS

    from harness.oracle.steps import WAYS

    for step, forms in WAYS.items():
        right = {"rms_norm", "shared_by_heads"}  # a layer's choice, and no wrong form
        assert set(forms) - right | {"standard"} == set(PLANTS[step]), step
