"""`conform diff` of modules of which no layer is read: their outputs, as those of black boxes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from documents import kinds_in, read_document

MODULES = Path(__file__).with_name("unread_modules.py")


def diff(conform: Callable, first: str, second: str):
    ended = conform("diff", f"{MODULES}:{first}", f"{MODULES}:{second}", "--jobs", "1", "--out", "report")
    return ended, read_document(ended.out / "diff.json")


@pytest.mark.release
def test_a_port_agrees_in_every_case_and_that_is_all_that_is_said(conform: Callable) -> None:
    ended, found = diff(conform, "Parallel", "Port")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert found["format"] == "encoder-conformance diff of outputs"
    assert sum(each["rms"] > 0 for each in found["apart"]) > 10, "numbers were compared"
    assert max(each["rms"] for each in found["apart"]) < 3
    assert "B was compared in float32" in ended.stdout
    assert "padding" in " ".join(found["cases"])
    assert "no mask" in " ".join(found["cases"])
    assert "neither is known to be right" in ended.stdout
    assert "attention and the feed-forward network stand side by side" in found["unread"][0]
    assert {each["side"]: each["features"] for each in found["unread_of"]}["A"] == ["parallel"]
    assert "no-float64" in kinds_in(found)


@pytest.mark.release
def test_another_computation_is_apart_everywhere(conform: Callable) -> None:
    ended, found = diff(conform, "Parallel", "Gelu")
    assert ended.status == 1, ended.stdout + ended.stderr
    far = {each["case"]: each["rms"] for each in found["apart"] if "far from zero" in each["case"]}
    assert min(each["rms"] for each in found["apart"] if each["case"] not in far) > 1e4
    assert min(far.values()) > 100, "where σ is larger"
    assert any(each["message"].startswith("from ") for each in found["findings"]), "where A leaves B is said"
    assert "first-step-apart" in kinds_in(found)


@pytest.mark.release
def test_one_that_is_wrong_without_a_mask_alone_is_said_to_be(conform: Callable) -> None:
    ended, found = diff(conform, "Parallel", "Causal")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert {each["case"].endswith("no mask") for each in found["apart"] if each["rms"] > 5} == {True}


def test_a_window_wider_than_ordinary_lengths_is_a_difference(conform: Callable) -> None:
    ended, found = diff(conform, "Parallel", "Local")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert {each["case"] for each in found["apart"] if each["rms"] > 5} == {"1 x 300"}


@pytest.mark.release
@pytest.mark.parametrize(
    ("second", "status", "said"),
    [
        ("Turned", 1, "attention_mask: true = attend in A, true = ignore in B"),
        ("Noisy", 2, "answers the same inputs otherwise the second time"),
        ("Short", 1, "ValueError: 16 positions at most"),
    ],
)
def test_what_no_number_shows_is_said(conform: Callable, second: str, status: int, said: str) -> None:
    ended, _ = diff(conform, "Parallel", second)
    assert ended.status == status, ended.stdout + ended.stderr
    assert said in ended.stdout + ended.stderr


@pytest.mark.release
@pytest.mark.parametrize("names", [("Parallel", "Undefined"), ("Undefined", "Parallel")])
def test_nan_in_one_of_them_is_a_difference_whichever_it_is(conform: Callable, names: tuple[str, str]) -> None:
    ended, found = diff(conform, *names)
    assert ended.status == 1, ended.stdout + ended.stderr
    apart = {each["case"]: each["problem"] for each in found["apart"] if each["problem"]}
    assert [case.partition(", ")[2] for case in apart] == ["an item of padding alone"]
    assert "has a number" in "".join(apart.values())
