"""A deviation replaces what it names, and applies nowhere else: deviations × layers."""

import pytest
from products import daily

from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes, check_steps, deviant
from encoder_conformance.oracle.forms.activation import LAYER
from encoder_conformance.oracle.inputs import given
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load
from encoder_conformance.spec.size import is_large

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


NORMS = {
    "norm-fast-variance": "layer_norm",
    "norm-layer-norm": "rms_norm",
    "norm-mean-not-subtracted": "layer_norm",
    "norm-rms": "layer_norm",
    "norm-unbiased-eps-outside-root": "layer_norm",
    "norm-unbiased-variance": "layer_norm",
}
"""Deviation → the only kind of norm that can have it. Every other one is of both."""
OF_NORMS = {name for name, deviation in catalogue().items() if {"norm1", "norm2"} & {*deviation.patch.steps}}


@pytest.mark.parametrize("name", sorted(OF_NORMS))
def test_it_is_of_layers_with_the_norm_that_can_have_it(name: str) -> None:
    small = [case for case in CASES.values() if not is_large(case.layer)]
    changed = [case for case in small if changes(case, catalogue()[name])]
    having = {case.layer.norm.kind for case in changed}
    assert having == ({NORMS[name]} if name in NORMS else {"layer_norm", "rms_norm"})
    for case in changed:
        wrong = deviant(case, [catalogue()[name]]).given.variants
        forms = [form for step, form in wrong.items() if step in ("norm1", "norm2")]
        assert all(form.startswith("rms_norm-") == (case.layer.norm.kind == "rms_norm") for form in forms)


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_a_sentence_names_a_norm_that_the_layer_has(kind: str) -> None:
    """What can go wrong with either is said of norms; the one that stands in for another is said to."""
    other = {"LayerNorm": "rms_norm", "RMSNorm": "layer_norm"}[kind]
    said = {name: deviation.sentence for name, deviation in catalogue().items() if deviation.sentence.startswith(kind)}
    told = {name for name, sentence in said.items() if "stands in for" not in sentence}
    wrong = {name for name in told for case in CASES.values() if changes(case, catalogue()[name])
             and case.layer.norm.kind == other}  # fmt: skip
    assert wrong == set()


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


REPLACING = [name for name, deviation in catalogue().items() if deviation.patch.replaces]


@pytest.mark.release
@pytest.mark.parametrize("name", daily(REPLACING[:1], REPLACING))
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
