"""Opens the file that is validated: a worker looks into it, and stays."""

from collections.abc import Sequence
from pathlib import Path

from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationRequest
from encoder_conformance.commands.validate.runtimes import (
    RuntimeRun,
    close_all,
    inspecting,
    limit_time,
    look_by_reference,
)
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.protocol.messages import Inspect
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.opening import inspected
from encoder_conformance.subjects.starting import new_session
from encoder_conformance.worker.failure import Failure

_LOG = "inspect.log"


def reachable(model: Path, out: Path) -> Path:
    """The path, or a link to it where its name is not UTF-8: no message can carry that."""
    try:
        str(model.absolute()).encode()
    except UnicodeEncodeError:
        link = out.absolute() / "model.onnx"
        link.unlink(missing_ok=True)
        link.symlink_to(model.absolute())
        return link
    return model


def examined(request: ValidationRequest, runs: Sequence[RuntimeRun], logs: Path, folder: Path) -> ExaminedFile:
    """The file as a worker describes it, which stays: it knows the file, and is asked for its run.

    Where that ends the worker, another looks into it without ONNX Runtime: what one runtime does not stand is that
    runtime's."""
    found = _examined(request, runs, logs)
    if isinstance(found, ExaminedFile):
        return found
    if found.outcome == Outcome.CRASH:
        close_all(runs)
        look_by_reference(runs, request.model, request.pythons, folder)
        limit_time(runs, request.seconds)
        again = _examined(request, runs, logs)
        if isinstance(again, ExaminedFile):
            return again
    raised = found.outcome == Outcome.ERROR
    problem = "it could not be looked into" if raised else "looking into it did not end well"
    message, hint = f"{problem}: {found.message}", str(logs / _LOG)
    finding = PhaseFinding(phase="file", severity="error", kind="not-examined", message=message, hint=hint)
    return ExaminedFile(request, FileDescription(findings=(finding,)), {})


def _examined(request: ValidationRequest, runs: Sequence[RuntimeRun], logs: Path) -> ExaminedFile | Failure:
    run = inspecting(runs)
    if run is None:
        found = runs[0].found
        assert not isinstance(found, Ready)
        raise InputError(f"no ONNX runtime can be started here ({found.reason})", hint=found.hint)
    assert isinstance(run.found, Ready)
    run.session = new_session(run.found, logs / _LOG, limits=request.limits)
    path, new = str(request.model.absolute()), str(request.fix.absolute()) if request.fix else None
    asked = Inspect(path=path, mask=request.mask, fix=new, most_nodes=request.most_nodes)
    answer = inspected(run.session, asked)
    return answer if isinstance(answer, Failure) else ExaminedFile(request, *answer)
