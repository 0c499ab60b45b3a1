"""The bugs that five published encoders came with are each named as themselves, on their own layers."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from products import daily

from encoder_conformance import Masks, RunRequest
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.selection import choose, screening
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load

FAKES = Path(__file__).resolve().parents[2] / "fakes"
SCRIPT = """
import runpy
from encoder_conformance import serve

serve(runpy.run_path("{fakes}/published.py")["{name}"]())
"""
SHOWN = {"pre": "[norm1, attention_output, norm2, ffn_output, output]"}
BUGS = [
    ("ProjectionsDeclared", "pre-gelu-shared-heads", "projections-not-applied"),
    ("Placeholder", "post-relu", "attention-is-projected-query"),
    ("Reshaped", "post-relu", "heads-by-reshape"),
    ("Reshaped", "pre-gelu", "heads-by-reshape"),
]


@pytest.mark.release
@pytest.mark.parametrize("checks", [pytest.param("[output]", marks=pytest.mark.release), "[output, stages]"])
@pytest.mark.parametrize(("name", "layer", "named"), daily(BUGS[1:2], BUGS))
def test_a_published_bug_is_named_on_its_own_layer(
    conform: Callable, fake: Callable, name: str, layer: str, named: str, checks: str
) -> None:
    folder = fake("published", script=SCRIPT.format(fakes=FAKES, name=name), checks=checks, stages=SHOWN["pre"])
    cases = [f"{layer}/{situation}" for situation in ("no-mask", "padding-right", "mask-per-head", "padded-item")]
    asked = [word for case in cases for word in ("--case", case)]
    ended = conform("run", "--impl", folder, *asked, "--dtype", "float32")
    assert ended.status == 1, ended.stdout + ended.stderr
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", [named])
    assert diagnosis["rms"] < 2
    assert diagnosis["indistinguishable"] == []


@pytest.mark.release
@pytest.mark.parametrize(
    ("layer", "named"), [("pre-gelu-shared-heads", "scale-by-head-dim"), ("pre-rms-silu", "norm-layer-norm")]
)
def test_what_most_layers_choose_is_named_where_a_layer_chooses_otherwise(layer: str, named: str) -> None:
    found = []
    for name in ("no-mask", "padding-right"):
        case = load().cases[f"{layer}/{name}"]
        wrong = deviant(case, [catalogue()[named]]).stages(Arithmetic(np.float32))
        answers = {stage: value.astype(np.float32) for stage, value in wrong.items()}
        expected = read_golden(case, read_golden_manifest(), constants())
        found.append(observation_of(case, expected, FORMATS["float32"], answers, failed=True))
    diagnosis = diagnose(Failing("other_choice", "float32"), found)
    assert (diagnosis.confidence, diagnosis.deviations, diagnosis.indistinguishable) == ("explained", (named,), ())


def placeholder_at_512(*situations: str) -> list[Observation]:
    """What the placeholder gives at the size that it was published with: its output alone."""
    layer, found = runpy.run_path(str(FAKES / "published.py"))["Placeholder"](), []
    for name in situations:
        case = load().cases[f"post-relu-512/{name}"]
        parameters = {name: value.astype(np.float32) for name, value in case.parameters().items()}
        layer.build(case.layer.model_dump(mode="json"), parameters, "float32")
        stages = layer.stages(
            case.x().astype(np.float32), Masks(case.padding_mask(), case.attention_mask()), RunRequest()
        )
        expected = read_golden(case, read_golden_manifest(), constants())
        answer = {"output": stages["output"]}
        found.append(observation_of(case, expected, FORMATS["float32"], answer, failed=True))
    return found


@pytest.mark.release
def test_a_placeholder_is_named_at_its_published_size() -> None:
    diagnosis = diagnose(Failing("placeholder", "float32"), placeholder_at_512("published-batch", "no-mask"))
    assert (diagnosis.confidence, diagnosis.deviations) == ("explained", ("attention-is-projected-query",))
    assert diagnosis.indistinguishable == ()


@pytest.mark.release
def test_of_a_large_layer_one_item_of_its_cheapest_case_is_tried_first() -> None:
    """Every hypothesis on every item of every case took ten minutes."""
    chosen = choose(placeholder_at_512("published-batch", "length-100", "no-mask"))
    assert [each.case.situation.situation for each in chosen] == ["no-mask", "length-100", "published-batch"]
    evidence = [Evidence(each) for each in chosen]
    [first] = screening(evidence).first
    [own] = [piece for piece in evidence if piece.case.id == "post-relu-512/no-mask"]
    assert 0 < first.right.size < own.right.size
    exact = first.errors_of(())
    assert np.array_equal(exact.moved, [0.0])
    assert exact.rms[0] > 1000
