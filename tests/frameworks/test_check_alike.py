"""Layers of one model that are one but for their numbers are examined once, and only those."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from products import daily

pytest.importorskip("torch")

MODELS = Path(__file__).with_name("alike_modules.py")


def checked(conform: Callable, folder: Path, name: str) -> tuple[Any, dict[str, str], dict[str, Any]]:
    """How it ended, each layer's like, and the verdicts by layer."""
    ended = conform("check", f"{MODELS}:{name}", "--level", "core", "--jobs", "1", "--out", folder / "out")
    parts = json.loads((folder / "out" / "check.json").read_text())["parts"]
    return ended, {each["at"]: each["described"]["same_as"] for each in parts}, {each["at"]: each for each in parts}


@pytest.mark.release
def test_alike_layers_are_read_once_and_told_in_one_line(conform: Callable, tmp_path: Path) -> None:
    ended, same_as, parts = checked(conform, tmp_path, "alike")
    assert ended.status == 0, ended.stdout
    assert same_as == {f"layers.{place}": "layers.0" if place else "" for place in range(4)}
    assert {at: part["like"] for at, part in parts.items()} == {
        "layers.0": None, **dict.fromkeys(("layers.1", "layers.2", "layers.3"), "layers.0")
    }  # fmt: skip
    printed = " ".join(ended.stdout.split())
    assert "alike layers.1 to layers.3: the same code and settings" in printed
    assert printed.count("This is a correct post-norm layer") == 1


@pytest.mark.release
def test_layers_of_which_no_adapter_can_be_written_are_alike(conform: Callable, tmp_path: Path) -> None:
    ended, same_as, parts = checked(conform, tmp_path, "of_gains_less_one")
    assert ended.status == 0, ended.stdout
    assert same_as == {f"layers.{place}": "layers.0" if place else "" for place in range(4)}
    assert [len(part["records"]) > 0 for part in parts.values()] == [True, False, False, False]


@pytest.mark.release
@pytest.mark.parametrize("name", daily(["by_place"], ["other_epsilon", "other_dropout", "by_place", "with_a_hook"]))
def test_a_layer_that_differs_in_one_thing_is_read_by_itself(conform: Callable, tmp_path: Path, name: str) -> None:
    ended, same_as, parts = checked(conform, tmp_path, name)
    assert same_as == {"layers.0": "", "layers.1": "layers.0", "layers.2": "", "layers.3": "layers.0"}
    wrong = name in ("by_place", "with_a_hook")
    is_like = name == "other_dropout"
    assert parts["layers.2"]["like"] == ("layers.0" if is_like else None)
    assert ("alike layers.2: read and proved to be like it" in " ".join(ended.stdout.split())) == is_like
    assert (ended.status == 0) != wrong, ended.stdout


def test_layers_that_take_no_mask_are_alike_without_one(conform: Callable, tmp_path: Path) -> None:
    ended, same_as, _ = checked(conform, tmp_path, "without_masks")
    assert ended.status == 0, ended.stderr
    assert same_as == {f"layers.{place}": "layers.0" if place else "" for place in range(4)}


@pytest.mark.release
def test_a_mask_of_queries_tells_a_layer_that_loses_it(conform: Callable, tmp_path: Path) -> None:
    _, same_as, _ = checked(conform, tmp_path, "of_queries")
    assert same_as == {"layers.0": "", "layers.1": "layers.0", "layers.2": "", "layers.3": "layers.0"}


@pytest.mark.release
def test_a_setting_that_is_the_number_of_its_place_is_a_setting(conform: Callable, tmp_path: Path) -> None:
    _, same_as, _ = checked(conform, tmp_path, "by_number")
    assert same_as == {f"layers.{place}": "" for place in range(4)}


@pytest.mark.release
def test_alike_layers_are_refused_once_and_told_in_one_line(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{MODELS}:refused", "--jobs", "1", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert "module layers.1 to layers.3 ✗ it takes no x [3, 5, d_model]" in printed, printed
