"""Opens what a file is compared with, by what its name says: a file .onnx, a checkpoint .safetensors, else a module."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import read_implementation
from encoder_conformance.module_check.checking import named
from encoder_conformance.module_check.judging import as_described
from encoder_conformance.module_check.subject import CheckRequest, Examined, Subject
from encoder_conformance.paths import IMPLS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.against.names import map_checkpoint
from encoder_conformance.validate.against.source import Source
from encoder_conformance.wire.description import FileDescription
from encoder_conformance.wire.findings import Problem
from encoder_conformance.wire.messages import Inspect
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

Array = npt.NDArray[Any]
_FILES = IMPLS / "onnx_file"


@dataclass(frozen=True)
class Named:
    """The source as the user names it: a module may be made with `arguments`, and its part `at` taken."""

    source: str
    arguments: Mapping[str, str]
    at: str | None
    folder: Path


def open_source(
    wanted: Named, layer: Layer | None, parameters: Mapping[str, Array], pythons: Mapping[str, str], logs: Path
) -> Source:
    """`layer` and `parameters` are what was found in the file. Raises InputError for what is no source."""
    if wanted.source.endswith(".safetensors"):
        return _checkpoint(wanted, parameters)
    if wanted.source.endswith(".onnx"):
        return _file(wanted, pythons, logs)
    return _module(wanted, layer, parameters, pythons, logs)


def _where(wanted: Named) -> str:
    return f"--against {wanted.source}"


def _checkpoint(wanted: Named, parameters: Mapping[str, Array]) -> Source:
    try:
        tensors: dict[str, Array] = dict(load_file(wanted.folder / wanted.source))
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=_where(wanted), hint="a file of safetensors") from None
    found = map_checkpoint(tensors, parameters)
    own = {name: f"{each.name} ({each.form})" for name, each in found.items()}
    return Source(wanted.source, "checkpoint", None, {name: each.value for name, each in found.items()}, own)


def _file(wanted: Named, pythons: Mapping[str, str], logs: Path) -> Source:
    path = str((wanted.folder / wanted.source).absolute())
    chosen = {"model": path, "runtime": "onnxruntime", "level": "disable"}
    session = _started(_FILES, chosen, wanted, pythons, logs)
    answer = session.inspect(Inspect(path=path, mask=None))
    if isinstance(answer, Failure):
        session.close()
        raise InputError(f"could not be looked into: {answer.message}", where=_where(wanted))
    description, held = FileDescription.model_validate_json(json.dumps(answer[0])), answer[1]
    if description.layer is None or description.roles is None:
        session.close()
        said = next((finding for finding in description.findings if finding.severity == "error"), None)
        raise InputError(f"is not understood{f': {said.message}' if said else ''}", where=_where(wanted))
    return Source(
        name=wanted.source,
        kind="file",
        layer=named(description.layer, "", told=False),
        parameters=held,
        own={name: source.initializer for name, source in description.parameters.items()},
        masks={mask.name: mask.meaning for mask in description.roles.masks if mask.meaning},
        operators=description.operators,
        opsets=description.file.opsets if description.file else {},
        findings=description.findings,
        session=session,
        implementation=session.ready.implementation,
    )


def _started(folder: Path, chosen: dict[str, str], wanted: Named, pythons: Mapping[str, str], logs: Path) -> Session:
    ready = resolve(read_implementation(folder, chosen, wanted.source), folder, dict(pythons))
    if isinstance(ready, Missing):
        raise InputError(f"cannot be loaded here: {ready.reason}", where=_where(wanted), hint=ready.hint)
    assert isinstance(ready, Ready)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / "source.log"
    log.unlink(missing_ok=True)
    return Session(ready, "cpu", 1, log)


def _module(
    wanted: Named, layer: Layer | None, parameters: Mapping[str, Array], pythons: Mapping[str, str], logs: Path
) -> Source:
    request = CheckRequest(
        target=wanted.source, arguments=wanted.arguments, folder=wanted.folder, at=wanted.at, pythons=pythons
    )
    subject = Subject(request, logs / "source.log")
    try:
        return _Modules(wanted, subject, layer, parameters).source()
    except BaseException:
        subject.close()
        raise


class _Modules:
    """Looks for the part of a module that the file was made from."""

    def __init__(self, wanted: Named, subject: Subject, layer: Layer | None, parameters: Mapping[str, Array]) -> None:
        self._wanted, self._subject, self._layer, self._parameters = wanted, subject, layer, parameters

    def source(self) -> Source:
        """The module or the part that was named; else the whole, or the one part that has the most of the file's
        values."""
        whole = self._subject.examined(self._wanted.at)
        if self._wanted.at is not None or self._fits(whole):
            return self._source(self._wanted.at, whole)
        paths = [*self._containers(), *self._subject.listed()]
        found = {path: self._subject.examined(path) for path in paths}
        fitting = {path: each for path, each in found.items() if self._fits(each)}
        if not fitting:
            return self._source(None, whole)
        best = max(fitting, key=lambda path: self._equal(fitting[path]))
        return self._source(best, self._subject.examined(best))  # the worker answers for what it examined last

    def _containers(self) -> list[str]:
        """What holds the listed parts: a stack of them, where they are members of one list."""
        above = [path.split(".")[:-1] for path in self._subject.listed()]
        paths = [".".join(parts[: -1 if len(parts) > 1 else 1]) for parts in above if parts]
        return list(dict.fromkeys(path for path in paths if path))

    def _fits(self, found: Examined | Problem) -> bool:
        """Whether it has the file's parameters, by names and shapes."""
        if isinstance(found, Problem) or found.described.judged_as is None:
            return False
        shapes = {name: np.shape(value) for name, value in found.own.items()}
        return shapes == {name: value.shape for name, value in self._parameters.items()}

    def _equal(self, found: Examined | Problem) -> int:
        assert not isinstance(found, Problem)
        return sum(
            np.allclose(found.own[name], value, rtol=1e-2, atol=1e-2) for name, value in self._parameters.items()
        )

    def _source(self, at: str | None, found: Examined | Problem) -> Source:
        name = f"{self._wanted.source}{f' at {at}' if at else ''}"
        if isinstance(found, Problem):
            raise InputError(found.message, where=_where(self._wanted), hint=found.hint)
        described, own = found.described, found.own
        layer = described.judged_as
        if layer is None:
            problem = described.not_read.problem if described.not_read else "no layer was read off it"
            hint = "--at names the part that was exported, such as encoder.layer.0"
            raise InputError(
                f"is no encoder layer as the specification knows it: {problem}", where=_where(self._wanted), hint=hint
            )
        return Source(
            name=name,
            kind="module",
            layer=named(layer, "", told=False),
            parameters=own,
            own={name: source.own for name, source in described.parameters.items()},
            masks={mask.argument: mask.meaning for mask in described.masks},
            session=self._subject.session,
            implementation=as_described(self._subject.ready.implementation, described, name),
        )
