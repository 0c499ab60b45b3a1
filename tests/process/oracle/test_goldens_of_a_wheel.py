"""A wheel leaves out goldens of small layers: they are computed first, and say what the frozen ones say."""

from dataclasses import replace

import numpy as np
import pytest

from encoder_conformance.oracle.golden import goldens as goldens_module
from encoder_conformance.oracle.golden import store
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load
from tools.golden.verify import disagreement

CASES = load().cases
SHARING = ["post-gelu/padding-right", "post-gelu/padding-2d", "post-gelu/padding-huge", "post-gelu/weights-returned"]
"""One golden serves all four; the third has other contents of padding, the last another check."""


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the wheel had no golden of post-gelu."""

    def at_hand(case: Case) -> bool:
        return case.layer.layer != "post-gelu"

    monkeypatch.setattr(goldens_module, "is_at_hand", at_hand)


def test_a_golden_that_is_left_out_is_computed_once_and_is_the_frozen_one(request: pytest.FixtureRequest) -> None:
    cases = [CASES[name] for name in [*SHARING, "post-relu/no-mask"]]
    files = Goldens(cases)
    frozen = {case.id: files(case) for case in cases}
    request.getfixturevalue("left_out")
    here = Goldens(cases, jobs=0)
    assert [case.id for case in here.computed] == ["post-gelu/padding-right"]
    here.check()
    here.compute()
    for case in cases:
        computed = here(case)
        assert computed.tensors.keys() == frozen[case.id].tensors.keys()
        assert not disagreement(frozen[case.id], computed)
        for each, tensor in frozen[case.id].tensors.items():
            assert np.array_equal(computed.tensors[each].positions, tensor.positions), (case.id, each)


@pytest.mark.usefixtures("left_out")
def test_a_case_that_was_edited_is_no_frozen_one_though_its_golden_is_left_out() -> None:
    case = CASES["post-gelu/no-mask"]
    situation = case.situation.model_copy(update={"sequence": case.situation.sequence + 1})
    with pytest.raises(InputError, match="was made from another"):
        Goldens([replace(case, situation=situation)], jobs=0).check()


def test_in_a_checkout_a_golden_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "INSTALLED", False)
    monkeypatch.setattr(store, "golden_path", lambda case_id, folder: folder / "nowhere" / f"{case_id}.safetensors")
    goldens = Goldens([CASES["post-gelu/no-mask"]], jobs=0)
    assert not goldens.computed
    with pytest.raises(InputError, match="cannot be read"):
        goldens.check()
