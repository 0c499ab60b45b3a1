"""The numbers of the whole suite (`specs/constants.yaml`): two limits for the judge, and how goldens are made."""

from functools import cache
from typing import Annotated

from pydantic import Field, PositiveInt

from encoder_conformance.paths import SPECS
from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import read_model

_Limit = Annotated[float, Field(gt=0)]


class Constants(Strict):
    rms_limit: _Limit = Field(description="largest root mean square error of a tensor that conforms, in σ (J-4)")
    max_limit: _Limit = Field(description="largest error of an element that conforms, in σ (J-4)")
    condition_runs: PositiveInt = Field(description="Monte-Carlo runs behind a condition (C-2)")
    whole_output_up_to: PositiveInt = Field(description="an `output` of no more elements is kept whole (G-3)")
    sampled_positions: PositiveInt = Field(description="of any other golden tensor, how many positions are kept (G-3)")


@cache
def constants() -> Constants:
    return read_model(SPECS / "constants.yaml", Constants)
