"""A layer after the patch of a deviation."""

import pytest

from encoder_conformance.oracle.deviant import edited_layer
from encoder_conformance.spec.load import load, load_deviations

LAYERS, DEVIATIONS = load().layers, load_deviations()


@pytest.mark.parametrize("decimal", [False, True])
@pytest.mark.parametrize("name", [name for name, each in DEVIATIONS.items() if each.patch.layer])
def test_a_patch_changes_what_it_names_and_no_epsilon_beside_it(name: str, decimal: bool) -> None:
    """In float64 the float32 of 1e-5 is hundreds of σ from the decimal, which code has."""
    deviation = DEVIATIONS[name]
    patch = deviation.patch.layer
    assert patch is not None
    named = patch.model_dump(exclude_none=True)
    for layer in (LAYERS["pre-relu"], LAYERS["post-gelu"]):
        whole = layer.with_decimal_epsilon if decimal else layer
        edited = edited_layer(whole, deviation)
        if edited is whole:
            continue
        assert edited.norm.epsilon == named.get("norm", {}).get("epsilon", whole.norm.epsilon)
        assert edited != whole


def test_a_patch_that_names_what_a_layer_is_changes_nothing() -> None:
    post = LAYERS["post-gelu"].with_decimal_epsilon
    assert edited_layer(post, DEVIATIONS["norm-placement-post"]) is post
