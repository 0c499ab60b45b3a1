"""The cases of a file that fixes its sizes."""

import pytest

from encoder_conformance.commands.validate.phases.table import properties
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.cases import InputLimits, file_cases

LAYER = load().layers["post-relu"]


@pytest.mark.parametrize(("sequence", "permuted"), [(1, False), (2, False), (3, True)])
def test_two_positions_are_too_few_to_tell_an_order_by(sequence: int, permuted: bool) -> None:
    limits = InputLimits(padding=False, attention=False, by_item=False, by_head=False, sequence=sequence)
    asked = file_cases(properties(limits), limits, LAYER, FORMATS["float32"], CaseParameters.of({}))
    assert ("permutation" in {case.situation.invariant for case in asked}) == permuted
