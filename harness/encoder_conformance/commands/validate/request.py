"""The request for a validation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from encoder_conformance.protocol.description import MaskMeaning
from encoder_conformance.protocol.messages import MOST_NODES
from encoder_conformance.spec.layer import Layer
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.limits import WorkerLimits


@dataclass(frozen=True)
class ValidationRequest:
    """The file, and what the user states of it: None and empty where that is to be inferred.

    `strict`: a warning fails the validation, as an error does. `against`: what the file was made from.
    `limits`: of each worker; `seconds`: for looking into the file, and for each answer; None: the manifest's.
    `fix`: where to write the file with what is mechanical mended. `deviations`: ids of the catalogue, what the file
    does otherwise than the specification on purpose. `most_nodes`: the most that are read, functions inlined.
    """

    model: Path
    layer: Layer | None
    parameters: Mapping[str, npt.NDArray[Any]] | None
    mask: MaskMeaning | None
    runtimes: tuple[str, ...]
    pythons: Mapping[str, str]
    limit: float | None
    strict: bool = False
    against: SubjectRequest | None = None
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    seconds: float | None = None
    fix: Path | None = None
    deviations: tuple[str, ...] = ()
    most_nodes: int = MOST_NODES
