"""`specs/core.yaml`: the cases of the level `core`, the most revealing first."""

from pathlib import Path

from pydantic import Field

from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import read_model

FILE = "core.yaml"


class Core(Strict):
    """The cases of a run by default; `conform core build` selects them."""

    cases: tuple[str, ...] = Field(min_length=1, description="ids of required cases, the most revealing first")


def read_core(specs: Path) -> tuple[str, ...]:
    """The ids of the core's cases; () if the folder has no `core.yaml`."""
    path = specs / FILE
    return read_model(path, Core).cases if path.is_file() else ()
