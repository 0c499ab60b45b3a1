"""What another computation has in the place of a step: told by what both take and give."""

import numpy as np
import pytest

from encoder_conformance.blackbox.first_apart import first_apart
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.spec.axes import Array

X, Y = np.random.default_rng(0).standard_normal((2, 3, 5, 5))
WEIGHT, OTHER = np.random.default_rng(1).standard_normal((2, 5, 5))


def call(*made: tuple[str, str, tuple[str, ...], Array]) -> TracedCall:
    """Steps of x, y and a weight: a value, what makes it, what it takes, and its numbers."""
    given = (("x", "input", X), ("y", "input", Y), ("w", "parameter", WEIGHT), ("v", "parameter", OTHER))
    steps = [TracedStep(value=name, made_by=f"{kind} {name!r}", takes=(), given=kind) for name, kind, _ in given]  # type: ignore[arg-type]
    steps += [
        TracedStep(value=name, made_by=made_by, takes=takes, operator=made_by.split(" ")[0])
        for name, made_by, takes, _ in made
    ]
    return TracedCall(steps, {**{name: value for name, _, value in given}, **{name: value for name, *_, value in made}})


def said(mine: TracedCall, right: TracedCall) -> str:
    found = first_apart(mine, right, right)
    assert found is not None
    return found.computes


def test_another_number_is_told_with_the_number_of_the_other() -> None:
    mine, right = call(("s", "Div 's'", ("x",), X / 4)), call(("s", "div", ("x",), X / 2))
    assert said(mine, right) == "it gives 0.25 times input 'x', and div 0.5 times that"


@pytest.mark.parametrize(
    ("operand", "due"),
    [
        (np.cumsum(X, 1), "it takes 'x' where add takes what before makes"),
        (X / 2, "'x' is 2 times what before makes"),
    ],
)
def test_another_operand_of_the_same_operation_is_told(operand: Array, due: str) -> None:
    right = call(("h", "before", ("x",), operand), ("s", "add", ("h", "y"), operand + Y))
    assert said(call(("s", "Add 's'", ("x", "y"), X + Y)), right) == due


def test_a_mask_that_is_ignored_is_what_a_softmax_is_not_given() -> None:
    masked = np.where(X > 0.5, -1e9, X)
    right, mine = (
        call(("h", "masked_fill", ("x",), masked), ("s", "_softmax", ("h",), np.exp(masked))),
        call(("s", "Softmax 's'", ("x",), np.exp(X))),
    )
    hidden = int((X > 0.5).sum())
    assert said(mine, right) == f"'x' is what masked_fill makes, but {hidden} of 75 places fewer are hidden"


def test_a_parameter_in_the_place_of_another() -> None:
    right, mine = call(("p", "mm", ("x", "w"), X @ WEIGHT)), call(("p", "MatMul 'p'", ("x", "v"), X @ OTHER))
    assert said(mine, right) == "it takes 'v' where mm takes parameter 'w'"


def test_an_operand_whose_heads_are_in_another_order() -> None:
    turned = np.sin(X)[::-1]
    right = call(("h", "sin", ("x",), np.sin(X)), ("p", "bmm", ("h", "y"), np.sin(X) @ Y))
    mine = call(("h", "Sin 'h'", ("x",), turned), ("p", "MatMul 'p'", ("h", "y"), turned @ Y))
    assert said(mine, right) == "'h' is what sin makes with its axis 0 in another order"


def test_an_activation_of_what_the_other_does_not_activate() -> None:
    right = call(("a", "tanh", ("x",), np.tanh(X)), ("p", "mul", ("a", "y"), np.tanh(X) * Y))
    mine = call(("a", "Relu 'a'", ("y",), np.maximum(Y, 0)), ("p", "Mul 'p'", ("a", "x"), np.maximum(Y, 0) * X))
    assert said(mine, right) == "it computes relu of 'y', and in its place there is mul"


def test_what_is_not_known_is_what_there_is_in_its_place() -> None:
    right, mine = call(("s", "cumsum", ("x",), np.cumsum(X, 1))), call(("s", "Mish 's'", ("x",), np.sin(X) * X**2))
    assert said(mine, right) == "in its place there is cumsum"


def test_a_square_matrix_that_is_transposed_is_told() -> None:
    right, mine = call(("p", "mm", ("x", "w"), X @ WEIGHT)), call(("p", "MatMul 'p'", ("x", "t"), X @ WEIGHT.T))
    turned = TracedStep(value="t", made_by="parameter 't'", takes=(), given="parameter")
    mine = TracedCall([turned, *mine.steps], {**mine.values, "t": np.ascontiguousarray(WEIGHT.T)})
    assert said(mine, right) == "'t' is parameter 'w' transposed"
