"""`conform run` of an implementation whose manifest says `layers: published`."""

from collections.abc import Callable
from pathlib import Path

import pytest

PUBLISHED = "[output]\n  layers: published"
"""As the checks of a manifest, whose next key it is."""


@pytest.mark.release
def test_each_is_asked_its_own_layers_beside_the_other(conform: Callable, fake: Callable, honest: Path) -> None:
    """Goldens are computed of one, and read of the other."""
    theirs = fake("theirs", checks=PUBLISHED)
    asked = [word for case in ("bert/no-mask", "t5/padding-right", "post-relu/no-mask") for word in ("--case", case)]
    ended = conform("run", "--impl", theirs, "--impl", honest, *asked, "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    outcomes = {(each["implementation"], each["case"], each["outcome"]) for each in ended.report["records"]}
    assert {each for each in outcomes if each[2] == "pass"} == {
        ("theirs", "bert/no-mask", "pass"),
        ("theirs", "t5/padding-right", "pass"),
        ("honest", "post-relu/no-mask", "pass"),
    }


def test_cases_that_are_nobodys_are_refused(conform: Callable, fake: Callable, honest: Path) -> None:
    theirs = fake("theirs", checks=PUBLISHED)
    ended = conform("run", "--impl", honest, "--impl", theirs, "--case", "pre-gelu/no-mask")
    assert ended.status == 2
    assert "none of these cases is asked of theirs" in ended.stderr
