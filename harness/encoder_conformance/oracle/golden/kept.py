"""Expectations that earlier commands computed: who edits a module and checks it again waits for none of them."""

import platform
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import expected_of, golden_path, tensors_of
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.kept import KeptFiles, digest_of_code
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants

EXPECTATIONS = KeptFiles("expectations", room=256 << 20)
"""Some 8,000 cases."""


def recalled(case: Case, constants: Constants) -> Expected | None:
    """The expectation of a case that an earlier command kept, or None."""
    content = EXPECTATIONS.get(_depends_on(case, constants))
    if content is None:
        return None
    try:
        return expected_of(case, safetensors.numpy.load(content), constants, golden_path(case.id))
    except (InputError, safetensors.SafetensorError):  # what made it was another program after all
        return None


def keep(case: Case, constants: Constants, expected: Expected) -> None:
    """Keep an expectation for later commands."""
    in_order = {name: np.ascontiguousarray(tensor) for name, tensor in tensors_of(expected).items()}
    EXPECTATIONS.put(_depends_on(case, constants), safetensors.numpy.save(in_order))


def _depends_on(case: Case, constants: Constants) -> list[Any]:
    layer, situation = case.layer.model_dump(mode="json"), case.situation.model_dump(mode="json")
    return [layer, situation, case.numbers_from, constants.model_dump(mode="json"), _computed_with()]


@cache
def _computed_with() -> tuple[object, ...]:
    """The code that computes, the versions of what it imports, and the machine's arithmetic."""
    machine = platform.machine(), int(np.finfo(np.longdouble).nmant)
    return digest_of_code(PACKAGE / "oracle", PACKAGE / "spec"), version("numpy"), version("scipy"), *machine
