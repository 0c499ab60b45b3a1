"""The cases that both subjects are asked: the core, as far as both can be given it, or inputs of the user's own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from encoder_conformance.commands.inspect.layer_selection import at_size
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.cases import OWN, InputLimits, each_once, neutral, pool
from encoder_conformance.subjects.subject import Subject

DTYPE: DtypeName = "float32"
"""The format that both compute in."""
_CHECKS: tuple[Check, ...] = ("output", "stages", "gradients")


def cases_of_both(first: Subject, second: Subject, layer: Layer, inputs: Path | None) -> list[Case]:
    """Raises InputError if the first one's parameters are none of the layer's, or if there is nothing to ask."""
    absent = (*first.absent, *second.absent)
    own = _own(first, layer, absent)
    limits = [each for each in (_limits(first), _limits(second)) if each]
    if inputs is not None:
        return [_of_file(inputs, layer, own, absent)]
    asked = (case for case in pool(layer, limits, "core") if case.situation.invariant is None)
    found: list[Case] = []
    for case in each_once(asked, DTYPE):
        held = CaseParameters.of(neutral(case.parameters(), absent)) if absent else None
        found.append(_asked(case, held, layer.layer))
        if own is not None and case.situation.situation in OWN:
            found.append(_asked(case, own, f"{layer.layer}-own"))
    return found


def _limits(subject: Subject) -> InputLimits | None:
    """The masks that it can be given; None: all. Raises InputError for a file of one size."""
    limits = subject.limits
    if limits is not None and (limits.batch, limits.sequence) != (None, None):
        hint = "export it with dynamic axes, or validate it by itself"
        raise InputError("is fixed to one size of its inputs", where=subject.name, hint=hint)
    return limits


def _asked(case: Case, held: CaseParameters | None, name: str) -> Case:
    situation = case.situation
    checks = tuple(check for check in _CHECKS if check in situation.checks)
    asked = situation.model_copy(update={"checks": checks, "dtypes": (DTYPE,)})
    layer = case.layer.model_copy(update={"layer": name})
    return Case(layer, asked, held=held or case.held, in_core=case.in_core)


def _own(first: Subject, layer: Layer, absent: tuple[str, ...]) -> CaseParameters | None:
    """The first side's own parameters; None if it has none."""
    if not first.parameters:
        return None
    whole = {**neutral(layer_parameters(layer, {}), absent), **first.parameters}
    if problem := unlike(layer, {name: np.shape(value) for name, value in whole.items()}):
        raise InputError(f"its parameters are none of {layer.layer}: {problem}", where=first.name)
    return CaseParameters.of(whole)


def _of_file(path: Path, layer: Layer, own: CaseParameters | None, absent: tuple[str, ...]) -> Case:
    """`x` [B, S, d_model], and if it has it `lengths` [B]: how many positions of each item are no padding."""
    try:
        tensors: Mapping[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=f"--inputs {path}", hint="a safetensors file") from None
    x = tensors.get("x")
    if x is None or x.ndim != 3 or x.shape[-1] != layer.d_model or x.dtype.kind != "f":
        found = "no tensor x" if x is None else f"x is {x.dtype} {list(x.shape)}"
        due = f"it needs x [batch, sequence, {layer.d_model}], of floating-point numbers"
        raise InputError(f"{found}; {due}", where=f"--inputs {path}")
    unknown = sorted(set(tensors) - {"x", "lengths"})
    if unknown:
        raise InputError(f"the tensor {unknown[0]!r} is no input", where=f"--inputs {path}", hint="known: x, lengths")
    B, S, _ = x.shape
    sized = at_size(layer, B, S, tuple(int(length) for length in tensors.get("lengths", ())))
    held = own or CaseParameters.of(neutral(layer_parameters(layer, {}), absent))
    case = _asked(sized, held, layer.layer)
    asked = case.situation.model_copy(update={"checks": _CHECKS, "situation": "own-inputs"})
    return replace(case, situation=asked, held_x=CaseParameters.of({"x": x.astype(DTYPE)}))
