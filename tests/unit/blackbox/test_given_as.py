"""Which argument of a module each input of a file is: by name, by meaning, in order, or not known."""

import numpy as np
import pytest

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.given_as import Argument, Held, arguments_of, given_as

IDS, X = np.ones((2, 5), np.int64), np.ones((2, 5, 4), np.float32)


@pytest.mark.parametrize(
    ("inputs", "arguments", "due", "in_order"),
    [
        ("attention_mask input_ids", "input_ids attention_mask", "attention_mask input_ids", ""),
        ("input_ids attention_mask token_type_ids", "tokens segments mask", "tokens mask segments", ""),
        ("in_0 in_1", "ids mask", "ids mask", "in_0 in_1"),
        ("input_ids in_1", "mask ids", "ids mask", ""),
        ("inputIds attentionMask", "mask ids", "ids mask", ""),
        ("src padding_mask", "x src_mask key_padding_mask", "x key_padding_mask", ""),
    ],
)
def test_each_input_is_an_argument(inputs: str, arguments: str, due: str, in_order: str) -> None:
    found = given_as(dict.fromkeys(inputs.split(), IDS), [Argument(name) for name in arguments.split()])
    assert dict(found.arguments) == dict(zip(inputs.split(), due.split(), strict=True))
    assert found.in_order == tuple(in_order.split())


def test_what_says_that_it_takes_numbers_is_given_no_integers() -> None:
    arguments = [Argument("a", kind="f", rank=3), Argument("b", kind="i", rank=2)]
    assert dict(given_as({"one": IDS, "two": X}, arguments).arguments) == {"one": "b", "two": "a"}


@pytest.mark.parametrize("arguments", ["ids mask", "ids mask position_ids"])
def test_what_has_no_place_or_another_meaning_is_refused_with_both_lists(arguments: str) -> None:
    inputs = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), IDS)
    with pytest.raises(
        BadTarget, match=r"token_type_ids int64 \[2 axes\], and the source ids, mask.*is token_type_ids"
    ):
        given_as(inputs, [Argument(name) for name in arguments.split()])


def test_a_switch_takes_no_array_but_by_its_name() -> None:
    def forward(src, mask=None, is_causal=False):  # type: ignore[no-untyped-def]
        """As TransformerEncoderLayer's."""

    arguments, free = arguments_of(forward)
    assert not free
    assert dict(given_as({"x": X, "extra": IDS}, arguments).arguments) == {"x": "src", "extra": "mask"}
    named = {"x": X, "extra": IDS, "is_causal": IDS}
    assert dict(given_as(named, arguments).arguments) == {"x": "src", "extra": "mask", "is_causal": "is_causal"}


def test_one_argument_holds_all() -> None:
    found = given_as({"input_ids": IDS, "attention_mask": IDS}, [Argument("batch")])
    first, second = (each.fed({"attention_mask": 1 - IDS, "input_ids": IDS})["batch"] for each in found.orders())
    assert isinstance(first, Held)
    assert first["ids"] is first.input_ids is IDS
    assert "labels" not in first
    assert first.get("labels") is None
    assert isinstance(second, tuple)
    assert second[0] is IDS, "in the file's order, whatever that of the frame is"


def test_a_module_of_any_names_is_given_those_of_the_file() -> None:
    assert dict(given_as({"a": IDS, "b": IDS}, [], free=True).arguments) == {"a": "a", "b": "b"}
