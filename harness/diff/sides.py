"""The two things that are compared: a module, an implementation or an ONNX file, each in a worker of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.deviations.catalogue import check_declared
from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import Implementation, find_implementation, known_folders, read_implementation
from encoder_conformance.module_check.judging import as_described
from encoder_conformance.module_check.subject import CheckRequest, Subject
from encoder_conformance.paths import IMPLS
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.subjects.cases import InputLimits
from encoder_conformance.wire.description import FileDescription
from encoder_conformance.wire.findings import Problem
from encoder_conformance.wire.messages import Inspect
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

Array = np.ndarray[Any, Any]
DTYPE: DtypeName = "float32"
"""What every side computes in."""


@dataclass(frozen=True)
class Side:
    """`layer`: what it is, read off it; None for an implementation, which is any layer. `own`: its parameters, in the
    specification's names. `absent`: those that it has not. `limits`: what its masks can say; None: everything."""

    name: str
    session: Session
    implementation: Implementation
    layer: Layer | None = None
    own: Mapping[str, Array] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    limits: InputLimits | None = None


def open_side(named: str, stated: Layer | None, *, resize: bool, log: Path) -> Side:
    """Raises InputError for what is none of them, or cannot be started here."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if named.endswith(".onnx"):
        return _onnx_file(named, log)
    if named.endswith(".safetensors"):
        hint = "name what computes with them: hf:FOLDER for a folder that has its config.json, too"
        raise InputError("holds parameters, and computes nothing", where=named, hint=hint)
    if named.partition(":")[0] in known_folders() or (Path(named.partition(":")[0]) / "impl.yaml").is_file():
        folder, implementation = find_implementation(named)
        check_declared(implementation, folder)
        return Side(named, Session(_ready(named, implementation, folder), "cpu", 1, log), implementation)
    return _module(named, stated, resize, log)


def _module(named: str, stated: Layer | None, resize: bool, log: Path) -> Side:
    target, _, at = named.partition("@")
    subject = Subject(CheckRequest(target=target, layer=stated, resize=resize), log)
    found = subject.examined(at or None)
    if isinstance(found, Problem):
        subject.close()
        raise InputError(found.message, where=named, hint=found.hint)
    described = found.described
    if described.judged_as is None or not described.parameters or described.unplaced:
        subject.close()
        reason = described.not_read.problem if described.not_read else "not all of its parameters are found"
        raise InputError(reason, where=named, hint="--layer says which layer it should be")
    implementation = as_described(subject.ready.implementation, described, named)
    return Side(
        named,
        subject.session,
        implementation,
        described.layer if described.stated is None else described.stated,
        found.own,
        described.absent,
        described.ungiven,
        InputLimits.of_module(described),
    )


def _onnx_file(named: str, log: Path) -> Side:
    if not Path(named).is_file():
        raise InputError("there is no such file", where=named)
    folder, path = IMPLS / "onnx_file", str(Path(named).absolute())
    choices = {"model": path, "runtime": "onnxruntime", "level": "all"}
    ready = _ready(named, read_implementation(folder, choices, named), folder)
    session = Session(ready, "cpu", 1, log)
    answer = session.inspect(Inspect(path=path, mask=None))
    if isinstance(answer, Failure):
        session.close()
        raise InputError(f"could not be looked into: {answer.message}", where=named, hint=str(log))
    description = FileDescription.model_validate_json(json.dumps(answer[0]))
    if description.layer is None or description.roles is None:
        session.close()
        errors = "; ".join(each.message for each in description.findings if each.severity == "error")
        raise InputError(f"holds no layer that is known: {errors}", where=named, hint=f"conform validate {named}")
    return _as_inspected(named, ready, session, description, description.layer, answer[1])


def _ready(named: str, implementation: Implementation, folder: Path) -> Ready:
    ready = resolve(implementation, folder, {})
    if isinstance(ready, Missing):
        raise InputError(f"cannot be run here: {ready.reason}", where=named, hint=ready.hint)
    return ready


def _as_inspected(
    named: str, ready: Ready, session: Session, description: FileDescription, layer: Layer, own: Mapping[str, Array]
) -> Side:
    limits = InputLimits.of_file(description)
    if (limits.batch, limits.sequence) != (None, None):
        session.close()
        hint = "export it with dynamic axes, or validate it by itself"
        raise InputError("is fixed to one size of its inputs", where=named, hint=hint)
    stages = tuple(sorted({*map(kind_of, description.stages), "output"}))
    capabilities = ready.implementation.capabilities.model_copy(update={"stages": stages, "dtypes": (DTYPE,)})
    implementation = ready.implementation.model_copy(update={"name": named, "capabilities": capabilities})
    return Side(named, session, implementation, layer.with_decimal_epsilon, own, limits=limits)
