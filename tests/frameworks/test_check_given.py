"""`--inputs FILE`: what a module's arguments are given out of a file, up to where the file has numbers."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from encoder_conformance.readers.module_target.errors import BadTarget  # noqa: E402
from encoder_conformance.readers.module_target.examination import Examination  # noqa: E402
from encoder_conformance.readers.module_target.examining import examine  # noqa: E402
from encoder_conformance.readers.module_target.told import told_by  # noqa: E402

cases = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("called_modules.py"))))
ITEMS, POSITIONS = 2, 8


def _arrays(**other: Any) -> dict[str, Any]:
    return {"x": np.ones((ITEMS, POSITIONS, 16), np.float32), "plan": np.ones((ITEMS, POSITIONS, 7)), **other}


def _examined(folder: Path, arrays: Mapping[str, Any] | None) -> Examination:
    """The module, given what such a file has."""
    if arrays is not None:
        np.savez(folder / "arrays.npz", **arrays)
    module = cases.OfAPlan()
    return examine(module, dtypes=("float32",), told=lambda x_name: told_by(_message(folder), x_name, module))


def _message(folder: Path) -> dict[str, Any]:
    return {"given": {}, "inputs": "arrays.npz", "folder": str(folder), "target": "m.py:OfAPlan"}


def test_a_module_is_read_with_the_arrays_of_a_file_and_asked_no_longer_sequence(tmp_path: Path) -> None:
    found = _examined(tmp_path, _arrays())
    assert found.layer is not None, found.exported.problem
    assert found.lengths == tuple(range(1, POSITIONS + 1))
    assert "plan: that of the file, float64 [batch, sequence, 7]" in found.module.signature.arrangement.said[0]


def test_items_beyond_those_of_the_file_are_given_its_first_again(tmp_path: Path) -> None:
    plan = np.arange(ITEMS * POSITIONS * 7.0).reshape(ITEMS, POSITIONS, 7)
    np.savez(tmp_path / "arrays.npz", **_arrays(plan=plan))
    supply = told_by(_message(tmp_path), "x", None).beside["plan"]
    given = supply.of(3, 4)
    assert np.array_equal(given, plan[[0, 1, 0], :4])
    with pytest.raises(ValueError, match="8 positions, and 9"):
        supply.of(1, 9)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (None, "there is no file arrays.npz"),
        ({"plan": np.ones((2, 8, 7))}, "has plan, and no x"),
        (_arrays(x=np.ones((2, 8))), "x of arrays.npz is float64 [2, 8]"),
        (_arrays(x=np.ones((8, 8, 16))), "8 items of 8 positions"),
        (_arrays(x=np.array([{}], dtype=object)), "is no .npz file of arrays"),
        ({**_arrays(), "plam": np.ones(3)}, "no argument 'plam'"),
        (_arrays(plan=np.ones((2, 8, 6))), "x [2, 8, 16], plan [2, 8, 6]: ValueError: a plan has 7 numbers, not 6"),
        (_arrays(x=np.ones((2, 8, 32), np.float32)), "x [2, 8, 32], plan [2, 8, 7]: RuntimeError"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_what_is_wrong(
    tmp_path: Path, arrays: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(BadTarget) as refused:
        _examined(tmp_path, arrays)
    assert words in refused.value.problem


def test_what_is_no_file_of_arrays_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arrays.npz").write_text("x = 1")
    with pytest.raises(BadTarget, match=r"is no .npz file of arrays: it begins with b'x = 1'"):
        _examined(tmp_path, None)


def test_an_expression_is_not_given_as_a_word() -> None:
    message = {**_message(Path()), "inputs": "", "given": {"time": "np.zeros((3, 5))"}}
    with pytest.raises(BadTarget, match=r"time=np\.zeros.*is no Python literal") as refused:
        told_by(message, "x", None)
    assert "conform_inputs(batch, sequence)" in refused.value.hint
    assert told_by({**message, "given": {"time": "late"}}, "x", None).beside["time"].value == "late"
