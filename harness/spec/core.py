"""`specs/core.yaml`: the cases of the level `core`, in the order in which they show most."""

from pathlib import Path

from pydantic import Field

from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import read_model

FILE = "core.yaml"


class Core(Strict):
    """The cases that a run asks unless it is told otherwise; `conform core build` finds them."""

    cases: tuple[str, ...] = Field(min_length=1, description="ids of required cases, the one that shows most first")


def read_core(specs: Path) -> tuple[str, ...]:
    """The ids; none where the specification has no such file."""
    path = specs / FILE
    return read_model(path, Core).cases if path.is_file() else ()
