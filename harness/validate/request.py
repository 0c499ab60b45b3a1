"""The request for a validation, and its progress."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import MaskMeaning


@dataclass(frozen=True)
class ValidationRequest:
    """The file, and what the user states of it: None and empty where that is to be inferred."""

    model: Path
    layer: Layer | None
    parameters: Mapping[str, npt.NDArray[Any]] | None
    mask: MaskMeaning | None
    runtimes: tuple[str, ...]
    pythons: Mapping[str, str]
    limit: float | None


@dataclass(frozen=True)
class Progress:
    """`begin` gets the name of a task and its number of steps, `step` the name of each step that is done."""

    begin: Callable[[str, int], None]
    step: Callable[[str], None]
