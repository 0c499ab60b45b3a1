"""A deviation replaces what it names, and applies nowhere else: deviations × layers."""

import pytest

from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes, check_steps, deviant
from encoder_conformance.oracle.forms.activation import LAYER
from encoder_conformance.oracle.inputs import given
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load

CASES: dict[str, Case] = {}
"""Layer → one of its cases."""
for one in load().cases.values():
    if one.situation.mode == "eval" and one.layer.part == "encoder_layer":
        CASES.setdefault(one.layer.layer, one)
REPLACED = {
    "activation-gelu": {"relu"},
    "activation-leaky-relu": {"relu"},
    "activation-missing": {*LAYER},
    "activation-relu": {"gelu"},
    "activation-silu": {*LAYER} - {"silu"},
    "gate-activates-product": {"gelu", "gelu_tanh", "silu"},
    "gate-sigmoid": {"gelu", "gelu_tanh", "silu"},
    "gelu-after-ffn": {"gelu"},
    "gelu-exact": {"gelu_tanh", "quick_gelu"},
    "gelu-extra-after-ffn": {"gelu"},
    "gelu-quick": {"gelu"},
    "gelu-root-in-float32": {"gelu"},
    "gelu-tanh": {"gelu"},
    "relu-after-ffn": {"relu"},
    "relu-extra-after-ffn": {"relu"},
}
"""Deviation → the activations of the layers that can have it."""


def test_every_deviation_of_an_activation_is_here() -> None:
    forms = {
        name: {form for step, form in deviation.patch.steps.items() if step in ("activation", "after_ffn")}
        for name, deviation in catalogue().items()
    }
    assert {name for name, found in forms.items() if found - {"dropout"}} == {*REPLACED}


@pytest.mark.parametrize("name", REPLACED)
def test_it_is_of_layers_with_the_activation_that_it_replaces(name: str) -> None:
    deviation = catalogue()[name]
    having = {case.layer.feed_forward.activation for case in CASES.values() if changes(case, deviation)}
    assert having == REPLACED[name]


@pytest.mark.parametrize("name", [name for name, deviation in catalogue().items() if deviation.patch.replaces])
def test_it_leaves_every_other_layer_as_it_is(name: str) -> None:
    """Declared, played, or tried in a pair: the layer, what it is given and its steps are the right ones."""
    for case in CASES.values():
        if not changes(case, catalogue()[name]):
            start = given(case)
            left = deviant(case, [catalogue()[name]], start)
            assert left.layer is case.layer
            assert not left.given.variants
            assert left.given.parameters == start.parameters


@pytest.mark.parametrize(
    ("replaces", "said"),
    [
        ({"activation": ("gleu",)}, "step activation has no form 'gleu'"),
        ({"norm": ("gelu",)}, "there is no step 'norm'"),
    ],
)
def test_what_is_no_form_cannot_be_replaced(replaces: dict[str, tuple[str, ...]], said: str) -> None:
    patch = {"steps": {"activation": "gelu_tanh"}, "replaces": replaces}
    told = {"deviation": "mine", "sentence": "A patch of a test.", "kind": "numerics", "patch": patch}
    with pytest.raises(InputError, match=said):
        check_steps(Deviation.model_validate({**told, "unseen": None, "links": ()}), "mine.yaml")
