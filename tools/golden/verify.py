"""Compares a frozen golden with today's oracle, and keeps it where they agree."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.numpy

from encoder_conformance.judging.verdict import judge_tensor
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import (
    GOLDEN,
    GoldenEntry,
    case_digest,
    expected_of,
    golden_path,
    read_checked,
)
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import Constants

_CONDITION_DRIFT = 0.01
"""Relative. Conditions come from the same draws everywhere; another order of summation moves them by parts in 10⁶."""


def disagreement(frozen: Expected, today: Expected) -> str:
    """The first disagreement of today's oracle with a frozen golden, in one line; "" if they agree."""
    if frozen.kinked_rows.tolist() != today.kinked_rows.tolist():
        return f"kinked rows are {today.kinked_rows.tolist()}, frozen {frozen.kinked_rows.tolist()}"
    for name, tensor in frozen.tensors.items():
        now = today.tensors[name]
        observed = np.zeros(tensor.shape)
        observed.reshape(-1)[now.positions] = now.golden
        verdict = judge_tensor(name, observed, tensor, FORMATS["float64"])
        if not verdict.conforms:
            return f"{name} is {verdict.max:.3g} σ (float64) from the frozen golden"
        if not np.allclose(now.condition, tensor.condition, rtol=_CONDITION_DRIFT, atol=0, equal_nan=True):
            return f"{name}'s condition has changed"
    return ""


def still_frozen(
    case: Case, entry: GoldenEntry, today: Expected, constants: Constants, folder: Path = GOLDEN
) -> GoldenEntry | None:
    """The entry of a frozen golden that agrees with today's oracle; None if it disagrees or cannot be read.

    Another machine's BLAS gives other last bits. A golden that is still right stays, byte for byte, even if a change of
    the specification's language changed the digest of its case.
    """
    frozen = _agreeing(case, entry, today, constants, folder)
    if frozen is None or frozen.tensors.keys() != today.tensors.keys():
        return None
    return GoldenEntry(sha256=entry.sha256, case_sha256=case_digest(case, constants))


def with_frozen_tensors(
    case: Case, entry: GoldenEntry, today: Expected, constants: Constants, folder: Path = GOLDEN
) -> Expected:
    """`today`, with the tensors of a frozen golden that lacks some, byte for byte, if all that it has agree."""
    frozen = _agreeing(case, entry, today, constants, folder)
    if frozen is None:
        return today
    return replace(today, tensors={name: frozen.tensors.get(name, now) for name, now in today.tensors.items()})


def _agreeing(case: Case, entry: GoldenEntry, today: Expected, constants: Constants, folder: Path) -> Expected | None:
    """The tensors of a frozen golden that the case still has; None if one disagrees or the file cannot be read."""
    try:
        path = golden_path(case.id, folder)
        tensors = safetensors.numpy.load(read_checked(path, entry))
        frozen = expected_of(case, tensors, constants, path, among=tensors)
    except InputError:
        return None
    if any(tensor.golden.shape != today.tensors[name].golden.shape for name, tensor in frozen.tensors.items()):
        return None
    return None if disagreement(frozen, today) else frozen
