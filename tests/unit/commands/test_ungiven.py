"""What is said of an argument that a module was not asked with, or with one value alone."""

import pytest

from encoder_conformance.commands.check.arguments import argument_findings
from encoder_conformance.protocol.arguments import UngivenArgument, XArgument
from encoder_conformance.protocol.module_description import ModuleDescription


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "rr was not given: no array that was tried is taken. It is judged without rr"),
        ("a mask that hides nothing", "rr was given as a mask that hides nothing: no other array that was tried is"),
    ],
)
def test_an_argument_that_was_given_is_not_said_to_be_left_out(given: str, said: str) -> None:
    argument = UngivenArgument(argument="rr", changes=None, form="", cache=False, given=given)
    x = XArgument(argument="x", layout="[batch, sequence, d_model]", d_model=8, evidence="")
    described = ModuleDescription.model_construct(
        x=x, masks=(), unusable_masks=(), not_read=None, stated=None, ungiven_arguments=(argument,), framework="JAX"
    )
    [found] = [each for each in argument_findings(described) if each.kind == "argument-not-taken"]
    assert found.message.startswith(said)


def test_arguments_of_which_none_is_taken_are_told_in_one_line() -> None:
    none = (UngivenArgument(argument=name, changes=None, form="", cache=False, given="") for name in ("rr", "mems"))
    x = XArgument(argument="x", layout="[batch, sequence, d_model]", d_model=8, evidence="")
    described = ModuleDescription.model_construct(
        x=x, masks=(), unusable_masks=(), not_read=None, stated=None, ungiven_arguments=tuple(none), framework="JAX"
    )
    [found] = [each for each in argument_findings(described) if each.kind == "argument-not-taken"]
    assert found.message.startswith(
        "rr and mems were not given: no array that was tried is taken. It is judged without them"
    )
    assert found.about == {"arguments": ["rr", "mems"]}
