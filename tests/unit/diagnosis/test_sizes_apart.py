"""What is right up to a size and wrong beyond it is said to be, where nothing else that was asked tells them apart."""

import pytest

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.diagnosis.sizes_apart import AskedSize, sizes_apart
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load

LAYER, OTHER = load().layers["post-gelu"], load().layers["pre-gelu"]


def asked(situation: str, *, failed: bool, layer: Layer = LAYER, **of: object) -> AskedSize:
    return AskedSize(layer, load().situations[situation].model_copy(update=of), failed)


SHORT, LONG = asked("no-mask", failed=False), asked("length-300", failed=True)
FEW, MANY = asked("no-mask", failed=False, batch=2), asked("no-mask", failed=True, batch=17)


def test_a_length_from_which_on_all_is_wrong_is_said() -> None:
    alone = asked("no-mask", failed=False, sequence=64, batch=1)
    [found] = sizes_apart([SHORT, alone, LONG])
    assert sentence(found) == (
        "Right in every case of up to 64 positions, and wrong in every one of 300 or more: look for a table, a window "
        "or a mask of a fixed length."
    )


def test_what_is_done_with_one_item_is_said_where_the_longer_cases_alone_are_of_one() -> None:
    [found] = sizes_apart([SHORT, LONG])
    assert sentence(found).startswith(
        "Right in every case of up to 10 positions, and wrong in every one of 300 or more"
    )
    assert "or for what is done with less than 2 items, of which the longer cases alone are" in sentence(found)


def test_a_number_of_items_from_which_on_all_is_wrong_is_said() -> None:
    [found] = sizes_apart([FEW, MANY])
    assert sentence(found).startswith("Right in every case of up to 2 items, and wrong in every one of 17 or more: ")


NOT_SAID = {
    "nothing is right": [LONG],
    "nothing is wrong": [SHORT],
    "a long one is right": [SHORT, LONG, asked("no-mask", failed=False, sequence=301)],
    "as long a one is right": [SHORT, LONG, asked("no-mask", failed=False, sequence=300)],
    "a short one is wrong": [SHORT, LONG, asked("causal", failed=True, sequence=2)],
    "what is wrong has a mask": [SHORT, asked("causal", failed=True, sequence=300)],
    "what is wrong has other numbers": [SHORT, asked("large-mean", failed=True, sequence=300)],
    "what is right is of another layer": [asked("no-mask", failed=False, layer=OTHER), LONG],
    "what is right is of one position": [asked("no-mask", failed=False, sequence=1), LONG],
    "more items, and longer": [SHORT, asked("no-mask", failed=True, batch=17, sequence=300)],
}


@pytest.mark.parametrize("shown", NOT_SAID.values(), ids=NOT_SAID)
def test_it_is_not_said_where_a_case_refutes_it_or_something_else_tells_the_two_apart(shown: list[AskedSize]) -> None:
    assert sizes_apart(shown) == ()
