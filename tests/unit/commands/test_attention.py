"""Which of transformers' implementations of attention a check asks: of hf:NAME alone, and once."""

import pytest

from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.platform.errors import InputError


def test_it_is_an_argument_of_the_model() -> None:
    asked = CheckRequest("hf:bert", {"num_hidden_layers": "1"})
    assert asked.with_attention(None) == asked
    assert asked.with_attention("eager").arguments == {"num_hidden_layers": "1", "attn_implementation": "eager"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (CheckRequest("torch.nn:Linear"), "torch.nn:Linear is no hf:NAME, whose attention can be chosen"),
        (CheckRequest("hf:bert", {"attn_implementation": "sdpa"}), "--arg attn_implementation says another"),
    ],
)
def test_what_has_no_choice_or_another_is_refused(asked: CheckRequest, said: str) -> None:
    with pytest.raises(InputError, match=said):
        asked.with_attention("eager")
