"""Why a check was not asked, or why its answer does not conform: a kind, which programs read, and a text."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal[
    "declared",  # the manifest says that it cannot
    "capability",  # not among the capabilities of the manifest
    "default-layer",  # told nothing, it makes another layer
    "no-gradient",  # a declared deviation of which the oracle knows no gradient
    "predicted-in-size",  # a declared deviation of which the oracle knows the size alone
    "shape",
    "dtype",
    "non-finite",  # NaN or an infinity where there should be a number, or the other way round
    "bits",  # two answers that should be the same to the bit
    "after-refusal",  # a valid request fails only once an invalid one was refused
    "beside-refusal",  # a valid request fails in the same way before and after
]


class Reason(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    text: str
