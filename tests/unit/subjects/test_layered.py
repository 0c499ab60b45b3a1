"""A large model whose layers are read one by one: which of them is not as the file's is named."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from encoder_conformance.protocol.findings import Problem
from encoder_conformance.protocol.module_description import LiveProof, ModuleDescription
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.layered import open_layers
from encoder_conformance.subjects.subject import Subject, SubjectRequest

ONE = load().layers["post-relu"]
STACK = ONE.model_copy(update={"stack": ONE.stack.model_copy(update={"layers": 3, "final_norm": True})})
MADE = layer_parameters(STACK, {})
PROVED = LiveProof(holds=True, dtype="float64", rms=0.5, moved=16, of=16, wrong=(), inert=(), problem="")


def part(number: int, layer: Layer = ONE, **changed: np.ndarray) -> Subject:
    prefix = f"layers.{number}."
    own = {name.removeprefix(prefix): value.copy() for name, value in MADE.items() if name.startswith(prefix)}
    described = ModuleDescription.model_construct(masks=(), proof=PROVED, unplaced=(), not_read=None)
    names = {name: f"own.{name}" for name in own}
    return Subject("model", description=described, layer=layer, parameters={**own, **changed}, own_names=names)


class Model:
    """The worker of a model that has these parts at these paths, and a final norm."""

    def __init__(self, parts: Mapping[str, Subject | Problem]) -> None:
        self.request, self.parts = SubjectRequest("model.py:made"), parts

    def layers(self) -> tuple[list[str], Mapping[str, np.ndarray]]:
        return [*self.parts], {"norm.weight": MADE["final_norm.gain"], "norm.bias": MADE["final_norm.shift"]}

    def examined(self, at: str, *, like: bool) -> Subject | Problem:
        assert like
        return self.parts[at]


def opened(*parts: Subject | Problem, before: tuple[Subject, ...] = ()) -> Subject:
    named = {f"encoder.{number}": each for number, each in enumerate((*before, *parts))}
    model: Any = Model(named)
    found = open_layers(model, MADE, STACK)
    assert found is not None
    return found


def test_all_parameters_have_theirs_and_are_held_once() -> None:
    found = opened(*map(part, range(3)))
    assert found.parameters.keys() == MADE.keys()
    assert all(found.parameters[name] is value for name, value in MADE.items() if name.startswith("layers."))
    assert found.own_names["layers.2.norm1.gain"] == "encoder.2.own.norm1.gain"
    assert found.own_names["final_norm.gain"] == "norm.weight"
    assert (found.layer, [each.severity for each in found.said], found.session) == (
        STACK.with_decimal_epsilon, ["note"], None
    )  # fmt: skip


def test_a_layer_with_another_choice_is_named() -> None:
    other = ONE.model_copy(update={"norm": ONE.norm.model_copy(update={"epsilon": 1e-3})})
    [_, said] = opened(part(0), part(1, other), part(2)).said
    assert (said.severity, said.kind, said.about["layer"], said.about["key"]) == (
        "error", "layers-differ", "layers.1", "norm.epsilon"
    )  # fmt: skip


def test_a_layer_that_was_not_read_is_said_to_be_compared_with_nothing() -> None:
    found = opened(part(0), Problem(message="it is no layer", hint=""), part(2))
    [_, said] = found.said
    assert (said.severity, said.kind) == ("warning", "not-compared")
    assert "layers.1 was not compared with encoder.1 of model.py:made: it is no layer" in said.message
    assert not [name for name in found.parameters if name.startswith("layers.1.")]


def test_a_value_of_its_own_is_kept_for_the_comparison() -> None:
    changed = MADE["layers.1.norm1.gain"] + 1
    found = opened(part(0), part(1, **{"norm1.gain": changed}), part(2))
    assert np.array_equal(found.parameters["layers.1.norm1.gain"], changed)
    assert found.parameters["layers.1.norm2.gain"] is MADE["layers.1.norm2.gain"]


def test_of_a_longer_list_those_are_taken_that_have_the_values() -> None:
    found = opened(*map(part, range(3)), before=(part(2), part(0)))
    assert found.own_names["layers.0.norm1.gain"].startswith("encoder.2.")


@pytest.mark.parametrize("parts", [{}, {"encoder.0": part(0)}])
def test_fewer_layers_than_the_file_has_are_none_of_it(parts: dict[str, Subject]) -> None:
    model: Any = Model(parts)
    assert open_layers(model, MADE, STACK) is None
