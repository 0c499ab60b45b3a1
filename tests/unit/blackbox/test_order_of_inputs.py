"""A source whose arguments no name tells apart is given them in the order in which it answers as the file does."""

from typing import Any

import numpy as np
import pytest

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.blackbox.order_of_inputs import settle_order
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure

A, B = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
CASES = [WholeCase("2 x 3", 2, 3, is_padded=False, inputs={"in_0": A, "in_1": B}, values=())]


class Answering(Source):
    """2 a + b, of arguments of any name."""

    def __init__(self, names: tuple[str, str], *, refuses: bool = False) -> None:
        self.request, self.held = SubjectRequest("source.py:made"), "float32"
        self.names, self.refuses, self.order = names, refuses, dict[str, str]()
        self.in_order, self.given = ("in_0", "in_1"), dict(zip(("in_0", "in_1"), names, strict=True))

    def outputs(self, inputs: Outputs, precision: str, seed: int | None = None, *, kept: bool = True) -> Any:
        given = {self.order.get(name, self.given[name]): value for name, value in inputs.items()}
        if self.refuses and given["a"] is A:
            return Failure("error", "refused")
        return {"y": 2 * given["a"] + given["b"]}


@pytest.mark.parametrize(
    ("file", "source", "due"), [(("a", "b"), ("a", "b"), ("a", "b")), (("b", "a"), ("a", "b"), ("b", "a"))]
)
def test_the_nearest_order_is_kept(file: tuple[str, str], source: tuple[str, str], due: tuple[str, str]) -> None:
    called = Answering(source)
    settle_order(called, Answering(file), CASES, "float64")
    assert called.order == dict(zip(("in_0", "in_1"), due, strict=True))
    assert "no name says which they are" in called.how_given


def test_an_order_that_is_refused_is_none() -> None:
    called = Answering(("a", "b"), refuses=True)
    settle_order(called, Answering(("a", "b")), CASES, "float64")
    assert called.order == {"in_0": "b", "in_1": "a"}


def test_names_that_say_what_they_are_are_left() -> None:
    called = Answering(("a", "b"))
    called.in_order = ()
    settle_order(called, Answering(("b", "a")), CASES, "float64")
    assert called.order == {}
