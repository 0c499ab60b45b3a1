"""Reasons why a check does not apply, or its answer does not conform: a kind for programs and a text for people."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal[
    "declared",  # the manifest excludes the check
    "capability",  # not among the capabilities of the manifest
    "default-layer",  # without arguments, its constructor makes another layer
    "no-gradient",  # a declared deviation whose gradient the oracle cannot compute
    "predicted-in-size",  # a declared deviation of which the oracle predicts only the size
    "shape",
    "dtype",
    "non-finite",  # NaN or an infinity instead of a number, or the reverse
    "bits",  # two answers that should be equal bit for bit
    "input-ignored",  # an answer that does not depend on the input
    "after-refusal",  # a valid request fails only after an invalid one was refused
    "beside-refusal",  # a valid request fails in the same way before and after the refusal
    "memory",  # the worker held more than it may
    "given-up",  # not asked: the checks before it have each lost their worker
]


class Reason(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: Kind
    text: str
