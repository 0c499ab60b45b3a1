"""`conform check`: what was given is what is judged, and nothing is guessed."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.examination import Examination, examine
from encoder_conformance.spec.load import load

MODULES: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("asked_modules.py")))


def stated(name: str) -> Examination:
    torch.manual_seed(0)
    return examine(MODULES[name](), load().layers["post-gelu"], resize=True)


def said(found: Examination, severity: str) -> str:
    return "\n".join(each.message for each in findings_of(described(found)) if each.severity == severity)


RIGHT = [("HeadsInConfiguration", 6), pytest.param("HeadsInBuffer", 5, marks=pytest.mark.release)]
WRONG = [("WrongSix", 6), pytest.param("HeadsInterleaved", 4, marks=pytest.mark.release)]


@pytest.mark.parametrize(("name", "heads"), RIGHT)
def test_heads_that_no_attribute_names_are_those_that_give_its_output(name: str, heads: int) -> None:
    found = stated(name)
    assert found.layer is None, "its graph is read, and tells the heads"
    assert found.searched is not None
    assert found.searched.deviation == ""
    judged = described(found).judged_as
    assert judged is not None
    assert judged.attention.num_heads == heads
    assert not said(found, "error")


@pytest.mark.parametrize(("name", "heads"), WRONG)
def test_a_wrong_layer_is_accused_with_its_own_heads(name: str, heads: int) -> None:
    found = stated(name)
    judged = described(found).judged_as
    assert judged is not None
    assert judged.attention.num_heads == heads


@pytest.mark.release
def test_heads_that_nothing_tells_are_said_to_be_unknown() -> None:
    found = stated("Coupled")
    assert "its number of heads is not known" in said(found, "error")
    assert described(found).judged_as is None


@pytest.mark.release
def test_an_attribute_that_says_other_heads_is_named() -> None:
    found = stated("OneOfTwoNumbers")
    assert "it computes with 6 heads, and its attributes say 4" in said(found, "warning")
