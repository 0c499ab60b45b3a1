"""Constants of the whole suite (`specs/constants.yaml`): the judge's two limits, and the sizes of goldens."""

from functools import cache
from typing import Annotated

from pydantic import Field, PositiveInt

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import read_model

_Limit = Annotated[float, Field(gt=0)]


class Constants(Strict):
    rms_limit: _Limit = Field(description="largest root mean square error of a tensor that conforms, in σ (J-4)")
    max_limit: _Limit = Field(description="largest error of an element that conforms, in σ (J-4)")
    condition_runs: PositiveInt = Field(description="Monte-Carlo runs behind a condition (C-2)")
    whole_output_up_to: PositiveInt = Field(
        description="an `output` with at most this many elements is kept whole (G-3)"
    )
    sampled_positions: PositiveInt = Field(description="number of positions kept of any other golden tensor (G-3)")


@cache
def constants() -> Constants:
    return read_model(SPECS / "constants.yaml", Constants)
