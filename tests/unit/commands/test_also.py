"""The words of `--also`, and what a variant comes to. No module is made."""

from types import SimpleNamespace
from typing import Any

import pytest

from encoder_conformance.commands.check.also import Beside, variants_from
from encoder_conformance.commands.check.results import PartResult, VariantResult, worst
from encoder_conformance.commands.check.verdict import of_variant
from encoder_conformance.judging.records import Record
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.spec.outcome import Outcome


def variant(*outcomes: Outcome, **of: Any) -> VariantResult:
    records = tuple(
        Record(implementation="it", case=f"a/{n}", level="core", dtype="float32", check="output", outcome=each, rms=2.0)
        for n, each in enumerate(outcomes)
    )
    return VariantResult(word="compile", said="torch.compile", format="float32", records=records, **of)


def test_words_are_taken_once_and_unknown_ones_refused_with_a_suggestion() -> None:
    assert variants_from(["compile,half", "half, export"]) == ("compile", "half", "export")
    with pytest.raises(InputError, match="no variant 'compil'") as refused:
        variants_from(["compil"])
    assert "did you mean compile" in refused.value.hint
    with pytest.raises(InputError, match="no variant ''"):
        variants_from(["compile,"])


def test_one_that_was_not_judged_is_never_green() -> None:
    assert variant(Outcome.PASS, Outcome.DEVIATES).status == 0
    assert variant(Outcome.PASS, Outcome.FAIL).status == 1
    assert variant(Outcome.ERROR).status == 1
    assert variant().status == variant(Outcome.UNSUPPORTED).status == variant(problem="no compiler").status == 2
    assert [worst(each) for each in ([0, 2], [0, 2, 1], [0], [])] == [2, 1, 0, 2]


def test_a_line_says_what_it_came_to() -> None:
    wrong = variant(Outcome.PASS, Outcome.FAIL, first_stage="norm1")
    assert of_variant(wrong) == (
        "compile is wrong: 1 of 2 outputs differ, largest error 2.00 σ of float32; first stage apart: norm1."
    )
    raises = variant(Outcome.PASS, Outcome.ERROR, Outcome.CRASH)
    assert of_variant(raises) == "compile is wrong: 2 of 3 calls give no output (why: above)."
    both = variant(Outcome.FAIL, Outcome.TIMEOUT, first_stage="norm1")
    assert of_variant(both) == (
        "compile is wrong: 1 of 2 outputs differ, largest error 2.00 σ of float32; first stage apart: norm1; "
        "1 of 2 calls give no output (why: above)."
    )
    assert of_variant(variant(problem="no compiler")) == "compile was not judged: no compiler."


def test_a_part_that_another_was_asked_in_place_of_has_no_variants_and_one_that_was_not_judged_has_none_green() -> None:
    def beside(**of: Any) -> list[VariantResult]:
        found = PartResult.model_construct(**{"like": None, "layer": None, "records": (), **of})
        asked: Any = SimpleNamespace(also=("compile", "half"))
        judged: Any = None
        return [*Beside(judged, found, [], (), judged, asked, SILENT).variants(judged, judged)]

    assert beside(like="layers.0") == []
    assert [each.status for each in beside()] == [2, 2]
    assert {each.problem for each in beside()} == {"the module itself could not be judged"}
