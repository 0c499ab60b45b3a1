"""An ONNX file, as the worker that looked into it describes it."""

from collections.abc import Mapping
from pathlib import Path

from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.messages import Inspect
from encoder_conformance.subjects.starting import described_as, reader_session
from encoder_conformance.subjects.subject import Array, Subject, SubjectRequest, found_to_be, kinds_of
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session


def open_file(request: SubjectRequest, level: str, where: str, log: Path) -> Subject:
    """The file in ONNX Runtime, at this level of optimisation. Raises InputError if no layer is found in it."""
    path = str((request.folder / request.target).absolute())
    chosen = {"model": path, "runtime": "onnxruntime", "level": level}
    session = reader_session("onnx_file", chosen, request, where, log)
    try:
        found = inspected(session, Inspect(path=path, mask=None))
        if isinstance(found, Failure):
            raise InputError(f"could not be looked into: {found.message}", where=where, hint=str(log))
        description, parameters = found
        if description.layer is None or description.roles is None:
            errors = "; ".join(each.message for each in description.findings if each.severity == "error")
            hint = f"conform validate {request.target}"
            raise InputError(f"holds no layer that is known: {errors}", where=where, hint=hint)
    except BaseException:
        session.close()
        raise
    return Subject(
        name=request.target,
        session=session,
        implementation=found_to_be(session.ready.implementation, request.target, stages=kinds_of(description.stages)),
        description=description,
        layer=description.layer.with_decimal_epsilon,
        parameters=parameters,
        own_names=description.own_names,
    )


def inspected(session: Session, request: Inspect) -> tuple[FileDescription, Mapping[str, Array]] | Failure:
    """The worker's description of the file, and the parameters in it."""
    answer = session.describe(request)
    if isinstance(answer, Failure):
        return answer
    return described_as(FileDescription, answer[0], "the file", session), answer[1]
