"""How a module on JAX, or of Keras, is called that does not take x alone: found as it is in PyTorch."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.loading import load_target
from encoder_conformance.readers.module_target.supplies import Supply, Told
from encoder_conformance.readers.module_target.supplying import called_as_it_takes

_ON_JAX = {
    "of_positions": ("BSD", {"positions": "count"}, ()),
    "of_positions_in_numpy": ("BSD", {"positions": "count"}, ()),
    "of_a_key": ("BSD", {"key": "seed"}, ()),
    "of_a_mask": ("BSD", {"attention_mask": "full"}, ()),
    "of_lengths": ("BSD", {"lengths": "lengths"}, ()),
    "of_a_mapping": ("BSD", {"padding_mask": "none"}, ("hidden", "padding_mask")),
    "of_a_tuple": ("BSD", {"1": "none"}, ("0", "1")),
    "by_keyword_alone": ("BSD", {}, ()),
    "sequence_last": ("BDS", {}, ()),
}
_OF_OTHERS = {
    "LinenOfPositions": ("BSD", {"positions": "count"}, ()),
    "EquinoxOfAKey": ("SD", {"key": "seed"}, ()),
    "EquinoxSplitsItsKey": ("SD", {"dropout_key": "seed"}, ()),
    "EquinoxOfPositions": ("SD", {"positions": "count"}, ()),
}
_OF_KERAS = {
    "OfPositions": ("BSD", {"positions": "count"}, ()),
    "OfAMask": ("BSD", {}, ()),
    "OfAMapping": ("BSD", {}, ("hidden", "padding_mask")),
    "ByKeywordAlone": ("BSD", {}, ()),
    "SequenceLast": ("BDS", {}, ()),
    "MapOfRows": ("BHWD", {}, ()),
    "FailsWithoutItsMask": ("BSD", {"attention_mask": "full"}, ()),
    "OfASquare": ("BSD", {}, ()),
    "BuiltByTwoShapes": ("BSD", {}, ()),
    "OfABatchSize": ("BSD", {"batch_size": "size"}, ()),
}
_RELEASE = {*_OF_OTHERS, "of_a_mask", "of_a_tuple", "of_a_key", "OfAMask", "ByKeywordAlone"}


def _rows(rows: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(name, *row, marks=pytest.mark.release if name in _RELEASE else ()) for name, row in rows.items()
    ]


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets import each other, as files of one folder do."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def _called(cases: ModuleType, name: str) -> tuple[LiveModule, np.ndarray]:
    module = getattr(cases, name)()
    framework = framework_of(module)
    assert framework is not None
    with framework.undisturbed():
        return called_as_it_takes(framework.live(module))


def _found(live: LiveModule) -> tuple[str, dict[str, str], tuple[str, ...]]:
    way = live.signature.arrangement
    return way.form, {name: supply.kind for name, supply in way.beside.items()}, way.keys


@pytest.mark.parametrize(("name", "form", "beside", "keys"), _rows(_ON_JAX | _OF_OTHERS))
@pytest.mark.needs("equinox", "flax")
def test_a_module_on_jax_is_called_with_what_it_needs(
    name: str, form: str, beside: dict[str, str], keys: tuple[str, ...]
) -> None:
    cases = importlib.import_module("called_jax")
    live, x = _called(cases, name)
    assert _found(live) == (form, beside, keys)
    if name in _ON_JAX:  # the others have parameters of their own
        plain, _ = _called(cases, "plain")
        np.testing.assert_allclose(live.run({"x": x})["output"], plain.run({"x": x})["output"], atol=1e-5)


@pytest.mark.parametrize(("name", "form", "beside", "keys"), _rows(_OF_KERAS))
@pytest.mark.needs("keras")
def test_a_layer_of_keras_is_called_with_what_it_needs(
    name: str, form: str, beside: dict[str, str], keys: tuple[str, ...]
) -> None:
    cases = importlib.import_module("called_keras")
    live, x = _called(cases, name)
    assert _found(live) == (form, beside, keys)
    plain, _ = _called(cases, "Plain")
    plain.assign(live.flat())
    np.testing.assert_allclose(live.run({"x": x})["output"], plain.run({"x": x})["output"], atol=1e-5)


@pytest.mark.needs("keras")
def test_a_layer_of_keras_is_built_at_its_width_whatever_its_heads_are_and_its_constructor_takes() -> None:
    live, x = _called(importlib.import_module("called_keras"), "OfWideHeads")
    assert x.shape[-1] == 32
    assert live.run({"x": x})["output"].shape == x.shape


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param("called_keras", "OfAKind", marks=pytest.mark.needs("keras")),
        pytest.param("called_jax", "LinenOfAKind", marks=pytest.mark.needs("flax")),
    ],
)
def test_weights_are_made_by_a_call_as_a_user_says_that_it_is(source: str, name: str) -> None:
    module = getattr(importlib.import_module(source), name)()
    framework = framework_of(module)
    assert framework is not None
    with pytest.raises(BadTarget) as refused:
        framework.live(module)
    assert "no kind NoneType" in refused.value.problem
    assert "--with kind=VALUE" in refused.value.hint
    told = Told({"kind": Supply("value", value="encoder")})
    with framework.undisturbed():
        live, x = called_as_it_takes(framework.live(framework.built(module, lambda _: told)), told)
    assert live.run({"x": x})["output"].shape == x.shape


@pytest.mark.needs("keras")
def test_a_layer_that_has_to_be_told_whether_it_trains_is_examined() -> None:
    found = examine(importlib.import_module("called_keras").HasToBeTold())
    assert found.layer is not None
    assert not found.trains_unless_told


@pytest.mark.needs("keras")
def test_what_keras_caught_is_quoted_and_not_where_it_was_caught() -> None:
    with pytest.raises(BadTarget) as refused:
        load_target("called_keras.py:called_with_a_fault", {}, Path(__file__).parent)
    assert "ValueError: no kind str" in refused.value.problem
    assert "Exception encountered" not in refused.value.problem
    assert "error_handler" not in refused.value.problem


@pytest.mark.needs("keras")
def test_a_call_that_a_user_says_and_that_fails_is_refused_for_what_it_raises() -> None:
    module = importlib.import_module("called_keras").OfAKind()
    framework = framework_of(module)
    assert framework is not None
    with pytest.raises(BadTarget) as refused:
        framework.built(module, lambda _: Told({"kind": Supply("value", value=3)}))
    assert "no kind int" in refused.value.problem
    with pytest.raises(BadTarget, match="no argument 'kin'"):
        framework.built(module, lambda _: Told({"kin": Supply("value", value=3)}))
