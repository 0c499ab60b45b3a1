"""The first step of one computation that is none of another's, by values."""

import numpy as np
import pytest

from encoder_conformance.blackbox.first_apart import TracedCall, first_apart
from encoder_conformance.protocol.steps import TracedStep

X = np.random.default_rng(0).standard_normal((3, 5))
WEIGHT = np.random.default_rng(1).standard_normal((5, 5))


def call(*, shift: float = 0.0, turned: bool = False, noise: float = 0.0, fused: bool = False) -> TracedCall:
    """x → product → sum → tanh → y. `fused`: the product has no value of its own."""
    product = X @ WEIGHT
    made = product + 0.5 + shift
    values = {"product": product, "sum": made, "tanh": np.tanh(made), "y": np.tanh(made) * 2}
    if turned:
        values = {name: value.T for name, value in values.items()}
    values = {name: value * (1 + noise) for name, value in values.items()}
    names = ["product", "sum", "tanh", "y"]
    if fused:
        del values["product"]
    takes = dict(zip(names, [("x",), ("product", "bias"), ("sum",), ("tanh",)], strict=True))
    return TracedCall([TracedStep(value=name, made_by=f"makes {name}", takes=takes[name]) for name in names], values)


def test_the_step_after_the_last_that_both_have_is_named() -> None:
    found = first_apart(call(shift=1e-3), call(), call(noise=2**-24))
    assert found is not None
    assert found.made_by == "makes sum"
    assert found.alike == {"product": "makes product"}
    assert str(found) == "makes sum ('product', as makes product has it)"


@pytest.mark.parametrize("mine", [call(), call(turned=True), call(noise=2**-24), call(fused=True)])
def test_the_same_in_another_order_of_axes_or_within_noise_is_not_apart(mine: TracedCall) -> None:
    assert first_apart(mine, call(), call(noise=2**-24)) is None


def test_what_the_other_spells_otherwise_is_right_where_it_leads_to_the_same() -> None:
    assert first_apart(call(), call(fused=True), call(fused=True, noise=2**-24)) is None


def test_from_the_first_on_nothing_is_the_others() -> None:
    other = TracedCall(call().steps, {name: value + 1.0 for name, value in call().values.items()})
    found = first_apart(call(), other, other)
    assert found is not None
    assert (found.made_by, dict(found.alike)) == ("makes product", {})
