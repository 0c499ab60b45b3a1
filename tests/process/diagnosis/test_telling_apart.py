"""Deviations that explain one format alike are told apart by what other cases and other formats show."""

import numpy as np
import pytest

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.telling_apart import told_apart
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

BLIND, EXTREME, PLAIN = "post-relu-zero-rows/blind-queries-padding", "post-relu/extreme-logits", "post-relu/no-mask"
LOWERED = ("mask-added-minus-1e4", "mask-added-minus-1e9")


def seen(case_id: str, *ids: str, dtype: str = "float32") -> Observation:
    """What a layer with these deviations shows."""
    case, format = load().cases[case_id], FORMATS[dtype]
    expected = read_golden(case, read_golden_manifest(), constants())
    numbers = np.float32 if dtype == "float32" else np.float64
    wrong = deviant(case, [catalogue()[name] for name in ids]).stages(Arithmetic(numbers))
    answers = {name: wrong[name].astype(dtype) for name in stages(case.layer)}
    outcome = judge("stages", stages(case.layer), answers, expected, format).outcome
    return observation_of(case, expected, format, answers, failed=outcome != Outcome.PASS)


@pytest.mark.release
@pytest.mark.parametrize("true", LOWERED)
def test_another_format_decides(true: str) -> None:
    """In float32 both leave a query without a key its scores' noise; in float64 the smaller one leaves the scores."""
    shown = [seen(BLIND, true)]
    found = diagnose(Failing("it", "float32"), shown)
    assert {found.deviations, *found.indistinguishable} == {(name,) for name in LOWERED}
    decided = told_apart(found, shown, [seen(BLIND, true, dtype="float64")], None)
    assert (decided.confidence, decided.deviations, decided.indistinguishable) == ("explained", (true,), ())
    assert decided.sentences == (catalogue()[true].sentence,)


def test_another_case_of_the_format_decides() -> None:
    shown = [seen(BLIND, "mask-added-minus-1e9")]
    found = diagnose(Failing("it", "float32"), shown)
    decided = told_apart(found, shown, [seen(EXTREME, "mask-added-minus-1e9")], None)
    assert (decided.deviations, decided.indistinguishable) == (("mask-added-minus-1e9",), ())


def test_what_nothing_tells_apart_stays_beside_each_other() -> None:
    """A case in which both show nothing, none at all, and one that has another cause."""
    shown = [seen(BLIND, "mask-added-minus-1e9")]
    found = diagnose(Failing("it", "float32"), shown)
    for others in ([], [seen(PLAIN)], [seen(PLAIN, "scale-missing", dtype="float64")]):
        assert told_apart(found, shown, others, None) == found
