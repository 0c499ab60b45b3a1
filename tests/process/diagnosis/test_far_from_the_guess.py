"""A mistake of whose noise the right layer's says nothing: GELU far below 0, where ReLU gives 0 and has none, and what
is large where a right layer is small, of a layer whose stages are not kept whole."""

import numpy as np
import pytest

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.oracle.arithmetic import FLOAT32_ROUNDOFF, Rounded
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.golden.build import compute, constants_at_once
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.beyond import cases_beyond

LAYER = load().layers["pre-relu"]
SAID = "no-mask", "large-logits", "extreme-logits"
BEYOND = [case for case in cases_beyond(LAYER, ("float32",), padded=True) if case.situation.sequence < 30]
CASES = [*(Case(LAYER, load().situations[name]) for name in SAID), *BEYOND]


def observed(case: Case, planted: tuple[str, ...]) -> Observation:
    """What a layer in float32 with these mistakes gives, whose noise is that of its own steps."""
    expected, wrong = compute(case, constants_at_once(case)), deviant(case, [catalogue()[each] for each in planted])
    with np.errstate(all="ignore"):
        stages = wrong.stages(Rounded(FLOAT32_ROUNDOFF, 4242))
    answers = {name: value.astype(np.float32) for name, value in stages.items() if name in expected.tensors}
    seen = observation_of(case, expected, FORMATS["float32"], answers, failed=True)
    failed = Match.of((), [Evidence(seen)]).out_of_line > 0
    return observation_of(case, expected, FORMATS["float32"], answers, failed=failed)


@pytest.mark.parametrize("planted", [("activation-gelu",), ("activation-gelu", "mask-filled-minus-1e9")])
def test_it_is_named(planted: tuple[str, ...]) -> None:
    found = diagnose(Failing("mine", "float32", repeats="same"), [observed(case, planted) for case in CASES])
    assert found.confidence == "explained"
    assert found.deviations == planted
    assert found.rms is not None
    assert found.rms < 1.5


WIDE = [Case(load().layers["post-relu-256"], load().situations[name]) for name in SAID]


def test_it_is_named_where_no_stage_is_kept_whole() -> None:
    seen = [observed(case, ("scale-by-d-model",)) for case in WIDE]
    assert not any(each.whole for each in seen)
    found = diagnose(Failing("mine", "float32", repeats="same"), seen)
    assert (found.confidence, found.deviations) == ("explained", ("scale-by-d-model",))
