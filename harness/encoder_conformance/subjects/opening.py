"""The door: opens a subject by what its name says, a file by its ending, an implementation, else a module."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import numpy as np

from encoder_conformance.implementation.declared import check_declared
from encoder_conformance.implementation.manifest import find_implementation, known_folders
from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import Problem
from encoder_conformance.protocol.messages import Inspect
from encoder_conformance.spec.layer import Layer
from encoder_conformance.subjects.checkpoint import open_checkpoint
from encoder_conformance.subjects.layered import open_layers
from encoder_conformance.subjects.module import ModuleWorker, module_session
from encoder_conformance.subjects.starting import described_as, new_session, reader_session, require_ready
from encoder_conformance.subjects.subject import Array, Subject, SubjectRequest, found_to_be
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.session import Session

Parameters = Mapping[str, Array]


def open_subject(request: SubjectRequest, log: Path) -> Subject:
    """A subject that computes, whose worker writes to `log`. Raises InputError for what is none, or cannot start."""
    target = request.target
    if target.endswith(".onnx"):
        if not (request.folder / target).is_file():
            raise InputError("there is no such file", where=target)
        return open_file(request, "all", target, log)
    if target.endswith(".safetensors"):
        hint = "name what computes with them: hf:FOLDER for a folder that has its config.json, too"
        raise InputError("holds parameters, and computes nothing", where=target, hint=hint)
    if not is_module(target):
        return open_implementation(request, log, "cannot be run here").named(target)
    found = open_module(request, log)
    if is_unread(found):
        found.close()
        described = found.as_module
        reason = described.not_read.problem if described.not_read else "not all of its parameters are found"
        raise InputError(reason, where=request.target, hint="--layer says which layer it should be")
    return found


def is_module(target: str) -> bool:
    """Whether the name is one of a module: of no file and no implementation."""
    name = target.partition(":")[0]
    is_implementation = name in known_folders() or (Path(name) / "impl.yaml").is_file()
    return not (target.endswith((".onnx", ".safetensors")) or is_implementation)


def is_unread(module: Subject) -> bool:
    """Whether no layer that can be judged was read off a module: another feature, or parameters without a place."""
    described = module.as_module
    return module.layer is None or not described.parameters or bool(described.unplaced)


def source_session(request: SubjectRequest, log: Path) -> Session | None:
    """The session of a file's source: another file as it is written, or a module; None: a checkpoint computes nothing.

    Raises InputError if none can start.
    """
    where = f"--against {request.target}"
    if request.target.endswith(".safetensors"):
        return None
    if request.target.endswith(".onnx"):
        return _file_session(request, "disable", where, log)
    return module_session(request, where, log)


def open_source(
    request: SubjectRequest, made: Parameters, session: Session | None, layer: Layer | None = None
) -> Subject:
    """The source of a file with the parameters `made`: a checkpoint, a file, or a module, whose part is looked for.

    `session`: that of `source_session`. `layer`: what was read off the file. Raises InputError for what is none.
    """
    where = f"--against {request.target}"
    if session is None:
        return open_checkpoint(request.folder / request.target, request.target, where, made)
    if request.target.endswith(".onnx"):
        return _opened_file(request, where, session)
    module = ModuleWorker(request, session.log, session)
    try:
        return _source_in(module, made, layer, where)
    except BaseException:
        module.close()
        raise


def open_file(request: SubjectRequest, level: str, where: str, log: Path) -> Subject:
    """The file in ONNX Runtime, at this level of optimisation. Raises InputError if no layer is found in it."""
    return _opened_file(request, where, _file_session(request, level, where, log))


def _file_session(request: SubjectRequest, level: str, where: str, log: Path) -> Session:
    chosen = {"model": _path(request), "runtime": "onnxruntime", "level": level}
    return reader_session("onnx_file", chosen, request, where, log)


def _path(request: SubjectRequest) -> str:
    return str((request.folder / request.target).absolute())


def _opened_file(request: SubjectRequest, where: str, session: Session) -> Subject:
    """The file of a request in a session of its own."""
    try:
        found = inspected(session, Inspect(path=_path(request), mask=None))
        if isinstance(found, Failure):
            raise InputError(f"could not be looked into: {found.message}", where=where, hint=str(session.log))
        description, parameters = found
        if description.layer is None or description.roles is None:
            errors = "; ".join(each.message for each in description.findings if each.severity == "error")
            hint = f"conform validate {request.target}"
            raise InputError(f"holds no layer that is known: {errors}", where=where, hint=hint)
    except BaseException:
        session.close()
        raise
    stages = (*description.stages, "output")  # by name: a fused node may keep the sum of one layer inside
    return Subject(
        name=request.target,
        session=session,
        implementation=found_to_be(session.ready.implementation, request.target, stages=stages),
        description=description,
        layer=description.layer.with_decimal_epsilon,
        parameters=parameters,
        own_names=description.own_names,
    )


def inspected(session: Session, request: Inspect) -> tuple[FileDescription, Parameters] | Failure:
    """The worker's description of the file, and the parameters in it."""
    answer = session.describe(request)
    if isinstance(answer, Failure):
        return answer
    return described_as(FileDescription, answer[0], "the file", session), answer[1]


def open_implementation(
    request: SubjectRequest, log: Path, problem: str = "", limits: WorkerLimits | None = None
) -> Subject:
    """An implementation by its name or folder, with `:key=value,…` for a variant; its worker is held to `limits`.

    Raises InputError, `PROBLEM: reason`, if it cannot be started here.
    """
    folder, implementation = find_implementation(request.target)
    check_declared(implementation, folder)
    ready = require_ready(implementation, folder, request.pythons, request.target, problem)
    return Subject(implementation.name, new_session(ready, log, limits=limits), implementation)


def open_module(request: SubjectRequest, log: Path) -> Subject:
    """The module, or its part: `target@PATH`, whether a layer was read off it or not. Raises InputError for none."""
    target, _, at = request.target.partition("@")
    module = ModuleWorker(replace(request, target=target), log)
    try:
        found = module.subject(at or None, request.target)
    except BaseException:
        module.close()
        raise
    return found.named(request.target)


def _source_in(module: ModuleWorker, made: Parameters, layer: Layer | None, where: str) -> Subject:
    """The module or the part that was named; else the whole, or the one part that has the most values of `made`; of
    what is too large to be read as one, its layers."""
    found = module.examined(module.request.at, like=True)
    if module.request.at is None and not _fits(found, made):
        parts = {path: module.examined(path, like=True) for path in _may_be(module, layer)}
        equal = {path: _equal(part.parameters, made) for path, part in parts.items() if _fits(part, made)}
        if equal:
            found = module.examined(max(equal, key=equal.__getitem__))  # the worker answers for what came last
    if isinstance(found, Problem) and found.kind == "too-large-as-one" and layer is not None and layer.is_stack:
        layers = open_layers(module, made, layer)
        if layers is not None:
            return layers
    if isinstance(found, Problem):
        raise found.error(where)
    if found.layer is None:
        problem = found.as_module.not_read.problem if found.as_module.not_read else "no layer was read off it"
        hint = "--at names the part that was exported, such as encoder.layer.0"
        raise InputError(f"is no encoder layer as the specification knows it: {problem}", where=where, hint=hint)
    return found


def _may_be(module: ModuleWorker, layer: Layer | None) -> list[str]:
    """The paths of what may be the source of a file of this layer: what holds the listed parts, where they are members
    of one list, and, unless the file is of several layers, these parts."""
    listed = module.listed()
    above = [path.split(".")[:-1] for path in listed]
    paths = [".".join(parts[: -1 if len(parts) > 1 else 1]) for parts in above if parts]
    alone = [] if layer is not None and layer.stack.layers > 1 else listed
    return [*dict.fromkeys(path for path in paths if path), *alone]


def _fits(found: Subject | Problem, made: Parameters) -> TypeGuard[Subject]:
    """Whether it has these parameters, by names and shapes."""
    if isinstance(found, Problem) or found.layer is None:
        return False
    shapes = {name: np.shape(value) for name, value in found.parameters.items()}
    return shapes == {name: value.shape for name, value in made.items()}


def _equal(own: Parameters, made: Parameters) -> int:
    """The number of parameters that have the same values."""
    return sum(np.allclose(own[name], value, rtol=1e-2, atol=1e-2) for name, value in made.items())
