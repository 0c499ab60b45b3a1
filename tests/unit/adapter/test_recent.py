"""What an adapter keeps of the layers that it made last."""

import pytest

from encoder_conformance import Recent


def test_what_was_made_is_given_again_whatever_the_order_of_its_keys() -> None:
    recent, made = Recent[list[str]](2), []

    def make() -> list[str]:
        made.append("one more")
        return []

    first = recent.get(({"a": 1, "b": 2}, "float32"), make)
    assert recent.get(({"b": 2, "a": 1}, "float32"), make) is first
    assert recent.get(({"a": 1, "b": 2}, "float64"), make) is not first
    assert len(made) == 2


def test_the_one_that_was_used_longest_ago_goes_first() -> None:
    recent = Recent[object](2)
    one, two = recent.get("one", object), recent.get("two", object)
    assert recent.get("one", object) is one
    recent.get("three", object)
    assert recent.get("one", object) is one
    assert recent.get("two", object) is not two


def test_what_cannot_be_made_is_not_kept() -> None:
    recent = Recent[object](2)

    def refuse() -> object:
        raise ValueError("no such layer")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such layer"):
            recent.get("none", refuse)
    assert recent.get("none", object)
